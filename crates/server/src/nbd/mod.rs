//! NBD: the network block device protocol, fixed newstyle.

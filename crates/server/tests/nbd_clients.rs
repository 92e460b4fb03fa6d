//! The clients of others: libnbd and qemu.

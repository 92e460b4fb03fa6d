//! Clients that use up all file descriptors.

use std::fs::File;

use flashwise_server::limits::Limit;
use flashwise_testing::alone::alone;
use flashwise_testing::client::Client;
use flashwise_testing::waiting::wait_until;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::api::client::ask;
use crate::support::Rig;

#[test]
fn clients_leave_files_to_the_server_itself() {
    alone(|| {
        let (rig, _disk) = Rig::with_disk(1 << 20);
        let (api, _) = crate::api::start("127.0.0.1:0", Some("sesame")).unwrap();
        setrlimit(Resource::Nofile, Rlimit { current: Some(256), ..getrlimit(Resource::Nofile) }).unwrap();
        let open = || Client::open(rig.address(), "disk", false).ok();
        let mut clients: Vec<Client> = std::iter::from_fn(open).take(200).collect();
        assert!((20..64).contains(&clients.len()), "{} clients", clients.len());
        assert!(open().is_none());
        let counters = rig.server.counters();
        assert!(counters.limits.times(Limit::Files) >= 2);
        // Devices and the API have the reserve.
        let files: Vec<File> = (0..64).map(|_| File::open("/dev/null").unwrap()).collect();
        assert_eq!(ask(&api, "GET", "/readyz", "").status, 200);
        assert_eq!(clients[0].read(0, 4096).unwrap().len(), 4096);
        drop(files);
        drop(clients.pop());
        wait_until("another client is served", || open().is_some());
    });
}

//! Volumes that a server cannot open.

use flashwise_testing::client::Client;

use crate::common::fail;
use crate::serving::{Setting, get};

/// A missing disk of one volume does not stop others; if no volume can be opened, the start fails.
#[test]
fn a_volume_that_cannot_be_opened_does_not_keep_the_others_down() {
    let setting = Setting::with("", 8 << 20, "flash-size = \"4MiB\"\nerase-unit = \"64KiB\"\nram = \"1MiB\"\n");
    let path = setting.directory.path();
    let config = std::fs::read_to_string(setting.path("flashwise.toml")).unwrap();
    let other = format!("[[volume]]\nname = \"w\"\nbackend = \"{0}/gone.img\"\nram = \"1MiB\"\n", path.display());
    std::fs::write(setting.path("flashwise.toml"), format!("{config}{other}")).unwrap();
    let server = setting.serve();
    assert!(server.told().contains("the volume is not served"), "{}", server.told());
    let mut client = Client::open(&setting.address(), "v", true).unwrap();
    assert_eq!(client.read(0, 4096).unwrap(), [0; 4096]);
    drop(client);
    let status = setting.flashwise(&["status", "--api", &setting.api()]);
    assert!(status.contains("volume w is NOT SERVED: ") && status.contains("gone.img"), "{status}");
    let ready = get(path, "/readyz");
    assert!(ready.starts_with("HTTP/1.1 503") && ready.contains("1 of 2 volumes and pools do not serve"), "{ready}");
    assert!(get(path, "/metrics").contains("\nflashwise_unserved_volumes 1\n"));
    server.end();
    std::fs::rename(setting.path("disk.img"), setting.path("gone.img")).unwrap();
    let server = setting.serve();
    assert!(setting.flashwise(&["status", "--api", &setting.api()]).contains("volume v is NOT SERVED: "));
    server.end();
    std::fs::remove_file(setting.path("gone.img")).unwrap();
    let error = fail(path, &["serve", "flashwise.toml"], 2);
    assert!(error.contains("'v' backend: found") && error.contains("disk.img"), "{error}");
}

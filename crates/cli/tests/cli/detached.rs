//! A detach lasts until an operator attaches a cache again.

use flashwise_testing::client::Client;

use crate::serving::Setting;

#[test]
fn a_detached_volume_is_served_without_its_cache_until_it_is_attached() {
    let setting = Setting::new(8 << 20, "flash-size = \"4MiB\"\nerase-unit = \"64KiB\"\nram = \"1MiB\"\n");
    let disk = setting.path("disk.img").display().to_string();
    let flash = setting.path("cache.img").display().to_string();
    let server = setting.serve();
    let mut client = Client::open(&setting.address(), "v", true).unwrap();
    client.write(0, &[7; 8192]).unwrap();
    drop(client);
    server.end();
    setting.flashwise(&["detach", "--backend", &disk, "--flash", &flash]);
    std::fs::remove_file(&flash).unwrap();

    let server = setting.serve();
    let told = server.told();
    assert!(told.contains("volume v: its cache is detached, so it is served without one; "), "{told}");
    let mut client = Client::open(&setting.address(), "v", true).unwrap();
    assert!(client.read(0, 8192).unwrap() == [7; 8192] && !setting.path("cache.img").exists());
    drop(client);
    server.end();

    let attach = ["attach", "--backend", &disk];
    assert_eq!(
        setting.flashwise(&attach),
        format!("{disk} is attached: the next start of the server uses its flash.\n")
    );
    assert_eq!(setting.flashwise(&attach), format!("{disk} is not detached.\n"));
    let server = setting.serve();
    assert!(server.told().contains("volume v: its cache is new"), "{}", server.told());
    server.end();
}

//! Volumes that are made and removed while the server runs.

use std::path::Path;

use serde_json::Value;

use crate::common::fail;
use crate::pool::{API, ask, data, folder, serve, tool};

const MIB: u64 = 1 << 20;

fn volumes(folder: &Path) -> Vec<Value> {
    let status: Value = serde_json::from_str(&ask(folder, &["status", "--json"])).unwrap();
    status["volumes"].as_array().unwrap().clone()
}

fn names(folder: &Path) -> Vec<String> {
    volumes(folder).iter().map(|volume| volume["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_volume_is_made_served_again_after_a_restart_and_removed_with_its_data_in_place() {
    let (folder, _) = folder(false);
    let path = folder.path();
    // Without the pool: the management API is all that the server has.
    let config = std::fs::read_to_string(path.join("tank.toml")).unwrap();
    std::fs::write(path.join("tank.toml"), config.split("[[pool]]").next().unwrap()).unwrap();
    std::fs::write(path.join("disk.img"), data(MIB / 4096, 3)).unwrap();
    let (flash, kept) = (path.join("flash.img"), path.join("volumes.json"));
    let server = serve(path);
    let flash_setting = format!("flash={}", flash.display());
    let settings =
        ["--set", &flash_setting, "--set", "flash-size=16MiB", "--set", "erase-unit=1MiB", "--set", "ram=4MiB"];
    let create = |name, backend| [&["volume", "create", name, backend][..], &settings, &API].concat();
    // Each refusal has its reason, and changes nothing.
    let refused = |words: Vec<&str>, code: i32, says: &str| {
        let error = fail(path, &words, code);
        assert!(error.contains(says), "{words:?}: {error}");
        assert!(!kept.exists() && !flash.exists());
    };
    refused(create("Web", "disk.img"), 2, "found 'Web'");
    refused(create("web", "none.img"), 2, "none.img");
    refused(create("web", "/etc/passwd"), 2, "[api] directories allows more");
    let told = ask(path, &[&["volume", "create", "web", "disk.img"][..], &settings].concat());
    assert_eq!(told, "Volume web has 1 MiB and is served.\n");
    assert!(kept.exists());
    for (words, code, says) in [
        (create("web", "a.img"), 1, "there is an export 'web' already"),
        (create("two", "disk.img"), 2, "the backend of volume 'web'"),
        (create("two", "flash.img"), 2, "the flash of volume 'web'"),
    ] {
        let error = fail(path, &words, code);
        assert!(error.contains(says), "{error}");
    }
    let uri = "nbd+unix:///web?socket=nbd.sock";
    tool(path, "nbdcopy", &[uri, "back.img"]);
    assert_eq!(std::fs::read(path.join("back.img")).unwrap(), data(MIB / 4096, 3));
    let newer = data(MIB / 4096, 7);
    std::fs::write(path.join("newer.img"), &newer).unwrap();
    tool(path, "nbdcopy", &["--flush", "newer.img", uri]);
    server.kill();
    let server = serve(path);
    assert_eq!(names(path), ["web"]);
    assert_eq!(volumes(path)[0]["made"], Value::Bool(true));
    tool(path, "nbdcopy", &[uri, "back.img"]);
    assert_eq!(std::fs::read(path.join("back.img")).unwrap(), newer);
    // A volume with dirty blocks on flash is not deleted.
    let delete = [&["volume", "delete", "web", "--confirm", "web"][..], &API].concat();
    let error = fail(path, &delete, 1);
    assert!(error.contains("are not on") && error.contains("detach its flash first"), "{error}");
    assert!(
        fail(path, &[&["volume", "delete", "web", "--confirm", "wab"][..], &API].concat(), 2).contains("--confirm")
    );
    ask(path, &["detach", "web"]);
    assert_eq!(ask(path, &delete[..5]), "Volume web is deleted. Its backend has all data.\n");
    assert_eq!(std::fs::read(path.join("disk.img")).unwrap(), newer);
    assert!(names(path).is_empty());
    // All of it can be used again, in the same process.
    ask(path, &[&["volume", "create", "web", "disk.img"][..], &settings].concat());
    server.end();
    // One whose disk is gone keeps nothing else from being served, and can be forgotten.
    std::fs::rename(path.join("disk.img"), path.join("gone.img")).unwrap();
    let server = serve(path);
    assert!(server.told().contains("the volume is not served"), "{}", server.told());
    assert!(ask(path, &["status"]).contains("volume web is NOT SERVED: "));
    assert!(fail(path, &create("web", "a.img"), 1).contains("to forget it, delete it"));
    let told = ask(path, &delete[..5]);
    assert_eq!(told, "Volume web was not served and is forgotten. Its devices are unchanged.\n");
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), "[]");
    server.end();
}

//! Serves an export in memory, to measure only the NBD server: `nbd_memory URI SIZE_BYTES [later]`.

use std::sync::Arc;

use flashwise_server::front::{Options, Server, Uri};
use flashwise_storage::export::Exports;
use flashwise_testing::memory::Memory;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let usage = "usage: nbd_memory URI SIZE_BYTES [later]";
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (uri, size, later) = match &arguments[..] {
        [uri, size] => (uri, size, false),
        [uri, size, later] if later == "later" => (uri, size, true),
        _ => return Err(usage.into()),
    };
    let uri: Uri = uri.parse()?;
    let mut export = Memory::new(size.parse()?);
    if later {
        export = export.answering_later(1);
    }
    let exports = Exports::default();
    exports.add(&uri.export, Arc::new(export));
    let server = Server::start(&[uri.endpoint], exports, Options::default())?;
    for uri in server.uris(&uri.export) {
        println!("{uri}");
    }
    loop {
        std::thread::park();
    }
}

//! stub
use crate::access::Op;
/// stub
#[derive(Debug)]
pub struct Streams;
impl Streams {
    /// stub
    pub fn new(_threshold_blocks: u32) -> Streams {
        Streams
    }
    /// stub
    pub fn observe(&mut self, _o: u32, _l: u32, _op: Op) -> bool {
        false
    }
}

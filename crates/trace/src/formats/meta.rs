//! Storage traces of Meta's Tectonic:
//! `op_time,block_id,block_id_size,io_size,io_offset,user_name,user_namespace,op_name,op_count,host_name,rs_shard_id`.
//!
//! Source: CacheLib's documentation, "Evaluating cache performance", storage traces; Wong et al.: Baleen: ML admission
//! and prefetching for flash caches. FAST 2024, whose traces have the same columns. Tectonic keeps files in blocks of
//! some megabytes, in shards by a Reed-Solomon code. A shard of a block is a volume here, `block_id/rs_shard_id`. The
//! time is in seconds, offset and size are in bytes. Operations that begin with `getChunk` read, those that begin with
//! `putChunk` write. Equal requests of the same second are one line, with their number in `op_count`, and one request
//! here.

use flashwise_core::access::Op;

use super::fields::{Fields, TimeUnit};
use super::passed::Reason;
use super::plausible::{COMMAS, Habits, Layout};
use super::{Format, Lines, Malformed, ParseLine, Record};
use crate::request::{Request, Volumes};

/// The row of Meta's traces in the table of formats.
pub static FORMAT: Format = Format {
    name: "meta",
    title: "Meta Tectonic CSV (CacheLib, Baleen)",
    source: "op_time,block_id,block_id_size,io_size,io_offset,user_name,user_namespace,op_name,op_count,host_name,rs_shard_id; CacheLib, \
             storage traces; Wong et al., FAST 2024",
    parameters: &[],
    recognise: |sample| sample.fit_lines(&Meta),
    parser: |_, _, _| Ok(Box::new(Lines(Meta))),
};

const HEADER: &[u8] = b"op_time,block_id,";
const FIELDS: usize = 11;

fn op_of(word: &[u8]) -> Option<Op> {
    match word {
        get if get.starts_with(b"getChunk") => Some(Op::Read),
        put if put.starts_with(b"putChunk") => Some(Op::Write),
        _ => None,
    }
}

#[derive(Debug)]
struct Meta;

impl ParseLine for Meta {
    #[inline]
    fn line(&self, line: &[u8], volumes: &mut Volumes) -> Result<Record, Malformed> {
        if line.starts_with(HEADER) {
            return Ok(Record::PassedOver(Reason::Header));
        }
        let mut fields = Fields::new(line, b',');
        let time_us = fields.time_us(TimeUnit::Seconds, "a time in seconds")?;
        let mut volume = fields.next("a block's id")?.to_vec();
        fields.decimal("the length of the block's id")?;
        let length_bytes = fields.decimal("a size in bytes")?;
        let offset_bytes = fields.decimal("an offset in bytes")?;
        fields.next("a user")?;
        fields.next("a user's namespace")?;
        let word = fields.next("an operation")?;
        let expected = "an operation that begins with getChunk or putChunk";
        let op = op_of(word).ok_or_else(|| Malformed::new(word, expected))?;
        fields.decimal("a number of operations")?;
        fields.next("a host")?;
        volume.push(b'/');
        volume.extend(fields.next("a shard")?);
        fields.end(FIELDS)?;
        let volume = volumes.number(&volume);
        Ok(Record::Request(Request { time_us, op, volume, offset_bytes, length_bytes }))
    }

    fn layout(&self) -> Option<Layout> {
        Some(Layout {
            time: Some((0, TimeUnit::Seconds)),
            op: Some(7),
            op_of: Some(op_of),
            offset: (4, 1),
            length: (3, 1),
            volume: vec![1, 10],
            habits: Habits { dated: true, any_bytes: true, ..COMMAS.habits },
            ..COMMAS
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::formats::testing::{recognised, refuses, requests};

    const TRACE: &[u8] =
        b"op_time,block_id,block_id_size,io_size,io_offset,user_name,user_namespace,op_name,op_count,host_name,rs_shard_id\n\
        1702511878,12ce-9e05,9,8388608,0,4235083322,3487869255,getChunkData.NotInitialized,1,518845025,4\n\
        1702511883,12ce-9e05,9,75487,1007643,2705717031,3487869255,putChunk.Permanent,2,3724303644,11\n";

    #[test]
    fn reads_the_columns() {
        let expected = ["1702511878000000 R 12ce-9e05/4 0 8388608", "1702511883000000 W 12ce-9e05/11 1007643 75487"];
        assert_eq!(requests("meta", TRACE), expected);
        assert_eq!(recognised(TRACE), Ok("meta"));
    }

    #[test]
    fn refuses_malformed_input() {
        refuses(
            "meta",
            &[
                ("x,a,1,512,0,1,1,getChunkData.Permanent,1,1,0", r#"found "x", expected a time in seconds"#),
                ("1,a,1,-1,0,1,1,getChunkData.Permanent,1,1,0", r#"found "-1", expected a size in bytes"#),
                (
                    "1,a,1,512,0,1,1,deleteChunk,1,1,0",
                    r#"found "deleteChunk", expected an operation that begins with getChunk or putChunk"#,
                ),
                (
                    "1,a,1,512,0,1,1,putChunk.Permanent,1,1",
                    r#"found "1,a,1,512,0,1,1,putChunk.Permanent,1,1", expected a line with one more field: a shard"#,
                ),
            ],
        );
    }
}

//! Any sequence of commands to a logical unit. Each gets a reply. Memory is limited by the announced length, and no
//! request to the export exceeds its end.
#![no_main]

use std::sync::Arc;
use std::task::Waker;

use flashwise_core::filter::Caching;
use flashwise_fuzz::memory_export::{EXPORT_BYTES, MemoryExport};
use flashwise_server::scsi::call::Work;
use flashwise_server::scsi::nexus::{InitiatorPort, Nexus};
use flashwise_server::scsi::opcodes::{self, OPCODES};
use flashwise_server::scsi::plan::Progress;
use flashwise_server::scsi::status::{Answer, Status};
use flashwise_server::scsi::unit::Unit;
use flashwise_storage::export::{Claimable, Export};
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;

/// Returns a command of the table with some of its bytes, or any bytes.
fn command(program: &mut Unstructured) -> Result<[u8; 16]> {
    let mut cdb = [0; 16];
    let choice: u8 = program.arbitrary()?;
    for _ in 0..program.arbitrary::<u8>()? % 8 {
        cdb[usize::from(program.arbitrary::<u8>()? % 16)] = program.arbitrary()?;
    }
    if choice < 240 {
        let opcode = &OPCODES[usize::from(choice) % OPCODES.len()];
        cdb[0] = opcode.code;
        if let Some(action) = opcode.action {
            cdb[1] = cdb[1] & 0xe0 | action;
        }
    }
    Ok(cdb)
}

/// Performs one command and returns its reply.
fn perform(unit: &Arc<Unit>, nexus: &Nexus, program: &mut Unstructured) -> Result<Answer> {
    let cdb = command(program)?;
    let begun = match opcodes::begin(unit, nexus, &cdb) {
        Ok(begun) => begun,
        Err(answer) => return Ok(answer),
    };
    assert!(begun.out_bytes <= begun.memory_bytes && begun.memory_bytes <= 33 << 20);
    let sent = if program.ratio(1, 8)? { program.arbitrary::<u16>()?.into() } else { begun.out_bytes };
    let wanted = match begun.wanted(sent) {
        Ok(wanted) => wanted,
        Err(answer) => return Ok(answer),
    };
    let mut data = program.bytes((wanted as usize).min(program.len()).min(64))?.to_vec();
    data.resize(wanted as usize, 0);
    let mut plan = match begun.perform(unit, nexus, data) {
        Work::Answer(answer) => return Ok(answer),
        Work::Plan(plan) => plan,
    };
    let mut result = None;
    loop {
        let (sender, receiver) = std::sync::mpsc::channel();
        let submit = |request, export: &dyn Export| {
            export.submit(request, Box::new(move |result| drop(sender.send(result))));
        };
        match plan.advance(unit, result.take(), Caching::Usual, Waker::noop(), submit) {
            // The export replies immediately, and panics if a request exceeds its end.
            Progress::Submitted => result = Some(receiver.recv().expect("the export answers")),
            Progress::Blocked => panic!("there is one command at a time"),
            Progress::Done(answer) => return Ok(answer),
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let export = Arc::new(MemoryExport::new(bytes.first().is_some_and(|byte| byte % 8 == 7), 1));
    let unit = Arc::new(Unit::open("disk", Arc::new(Claimable::new(export)), None).expect("there is no file"));
    let nexuses = [1, 2].map(|id| unit.enter(InitiatorPort { transport_id: vec![id] }, false));
    let mut program = Unstructured::new(bytes.get(1..).unwrap_or_default());
    while !program.is_empty() {
        let nexus = &nexuses[usize::from(program.arbitrary::<u8>().unwrap_or(0) % 2)];
        let Ok(answer) = perform(&unit, nexus, &mut program) else { return };
        assert_eq!(answer.sense.is_some(), answer.status == Status::CheckCondition);
        assert!(answer.data.len() as u64 <= EXPORT_BYTES.max(64 << 10));
        if let Some(sense) = answer.sense {
            assert!(sense.encode(true)[0] == 0x72 && sense.encode(false).len() == 18);
        }
    }
});

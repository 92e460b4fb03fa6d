//! RESERVE, RELEASE, PERSISTENT RESERVE IN and OUT. Source: SPC-2, sections 7.16 and 7.21; SPC-4, sections 6.15 and
//! 6.16.

use super::call::{Call, GOOD, Handled, data};
use super::cdb::{Field, number};
use super::reservations::{Kind, Notice, Refusal};
use super::status::{Answer, Sense, Status, code, key};

/// Service actions of PERSISTENT RESERVE OUT.
pub mod action {
    pub const REGISTER: u8 = 0;
    pub const RESERVE: u8 = 1;
    pub const RELEASE: u8 = 2;
    pub const CLEAR: u8 = 3;
    pub const PREEMPT: u8 = 4;
    pub const PREEMPT_AND_ABORT: u8 = 5;
    pub const REGISTER_AND_IGNORE: u8 = 6;
}

/// Bytes of the parameters of PERSISTENT RESERVE OUT.
const PARAMETERS_BYTES: usize = 24;
const ALL_TARGET_PORTS: u8 = 0x04;
const SPECIFY_INITIATOR_PORTS: u8 = 0x08;
const ACTIVATE_PERSISTENCE: u8 = 0x01;
/// The relative identifier of the only target port.
const TARGET_PORT: u16 = 1;

pub fn reserve(call: Call<'_>) -> Handled {
    let mut reservations = call.unit.lock_reservations();
    reservations.reserve_simple(call.nexus.port());
    call.unit.note_reservations(&reservations);
    GOOD
}

/// Releases the initiator's own reservation. If another initiator has reserved the unit, this is no error and has no
/// effect.
pub fn release(call: Call<'_>) -> Handled {
    let mut reservations = call.unit.lock_reservations();
    if !reservations.registrations().is_empty() {
        return Err(Answer::status(Status::ReservationConflict));
    }
    reservations.nexus_lost(call.nexus.port());
    call.unit.note_reservations(&reservations);
    GOOD
}

/// Replies with the generation, the length of a list, and the list.
fn listed(call: &Call<'_>, generation: u32, list: &[u8]) -> Handled {
    let mut bytes = generation.to_be_bytes().to_vec();
    bytes.extend((list.len() as u32).to_be_bytes());
    bytes.extend(list);
    data(bytes, Field(7, 2).of(call.cdb))
}

pub fn read_keys(call: Call<'_>) -> Handled {
    let reservations = call.unit.lock_reservations();
    let keys: Vec<u8> = reservations.registrations().iter().flat_map(|one| one.key.to_be_bytes()).collect();
    listed(&call, reservations.generation(), &keys)
}

pub fn read_reservation(call: Call<'_>) -> Handled {
    let reservations = call.unit.lock_reservations();
    let descriptor = reservations.holding().map(|(kind, key)| {
        let mut descriptor = key.to_be_bytes().to_vec();
        descriptor.extend([0, 0, 0, 0, 0, kind as u8, 0, 0]);
        descriptor
    });
    listed(&call, reservations.generation(), &descriptor.unwrap_or_default())
}

pub fn report_capabilities(call: Call<'_>) -> Handled {
    let lasts = call.unit.lock_reservations().lasts();
    let keeps = u8::from(call.unit.keeps_reservations());
    let mask = Kind::ALL.iter().fold(0_u16, |mask, kind| {
        // The first byte has types 1 to 7 in bits 1 to 7, the second one type 8 in bit 0.
        mask | if *kind as u8 == 8 { 1 } else { 1 << (8 + *kind as u8) }
    });
    // PTPL_C, then TMV with PTPL_A.
    let mut bytes = vec![0, 8, keeps, 0x80 | u8::from(lasts)];
    bytes.extend(mask.to_be_bytes());
    bytes.extend([0, 0]);
    data(bytes, Field(7, 2).of(call.cdb))
}

pub fn read_full_status(call: Call<'_>) -> Handled {
    let reservations = call.unit.lock_reservations();
    let kind = reservations.holding().map(|(kind, _)| kind);
    let mut list = Vec::new();
    for one in reservations.registrations() {
        let holds = reservations.holds(&one.transport_id);
        list.extend(one.key.to_be_bytes());
        list.extend([0, 0, 0, 0, u8::from(holds)]);
        list.push(kind.filter(|_| holds).map_or(0, |kind| kind as u8));
        list.extend([0; 4]);
        list.extend(TARGET_PORT.to_be_bytes());
        list.extend((one.transport_id.len() as u32).to_be_bytes());
        list.extend(&one.transport_id);
    }
    listed(&call, reservations.generation(), &list)
}

pub fn persistent_out(call: Call<'_>) -> Handled {
    if call.data.len() != PARAMETERS_BYTES {
        return Err(Sense::illegal(code::PARAMETER_LIST_LENGTH_ERROR).into());
    }
    let (own, other) = (number(&call.data[..8]), number(&call.data[8..16]));
    let flags = call.data[20];
    let action = call.cdb[1] & 0x1f;
    let registers = matches!(action, action::REGISTER | action::REGISTER_AND_IGNORE);
    if flags & (SPECIFY_INITIATOR_PORTS | ALL_TARGET_PORTS) != 0 {
        return Err(Sense::INVALID_PARAMETER.into());
    }
    let lasts = registers && flags & ACTIVATE_PERSISTENCE != 0;
    if lasts && !call.unit.keeps_reservations() {
        return Err(Sense::INVALID_PARAMETER.into());
    }
    let (scope, kind) = (call.cdb[2] >> 4, Kind::of_number(call.cdb[2] & 0x0f));
    let is_typed = matches!(action, action::RESERVE | action::RELEASE | action::PREEMPT | action::PREEMPT_AND_ABORT);
    let kind = match kind {
        Some(kind) if scope == 0 => Some(kind),
        _ if is_typed && action != action::PREEMPT && action != action::PREEMPT_AND_ABORT => {
            return Err(Sense::INVALID_FIELD.into());
        }
        _ => None,
    };
    let mut guard = call.unit.lock_reservations();
    // A change that cannot be saved is not made.
    let mut changed = guard.clone();
    let id = &call.nexus.port().transport_id;
    let notices = match (action, kind) {
        (action::REGISTER, _) => changed.register(id, Some(own), other, lasts),
        (action::REGISTER_AND_IGNORE, _) => changed.register(id, None, other, lasts),
        (action::RESERVE, Some(kind)) => changed.reserve(id, own, kind).map(|()| Vec::new()),
        (action::RELEASE, Some(kind)) => changed.release(id, own, kind),
        (action::CLEAR, _) => changed.clear(id, own),
        (action::PREEMPT | action::PREEMPT_AND_ABORT, kind) => changed.preempt(id, own, other, kind),
        _ => return Err(Sense::INVALID_FIELD.into()),
    };
    let notices = notices.map_err(refused)?;
    if changed.lasts() || guard.lasts() {
        let kept = call.unit.keep_reservations(&changed);
        if let Err(error) = kept {
            tracing::error!(event = "reservations-not-saved", export = call.unit.name(), %error, "reservations cannot \
                be saved");
            return Err(Sense::new(key::HARDWARE_ERROR, code::INTERNAL_TARGET_FAILURE).into());
        }
    }
    *guard = changed;
    call.unit.note_reservations(&guard);
    drop(guard);
    tell(&call, &notices);
    if action == action::PREEMPT_AND_ABORT {
        call.unit.abort(|nexus| notices.iter().any(|(id, _)| *id == nexus.port().transport_id));
    }
    GOOD
}

fn tell(call: &Call<'_>, notices: &[Notice]) {
    for (id, code) in notices {
        call.unit.attend(*code, |nexus| nexus.port().transport_id == *id);
    }
}

fn refused(refusal: Refusal) -> Answer {
    match refusal {
        Refusal::Conflict => Answer::status(Status::ReservationConflict),
        Refusal::InvalidParameter => Sense::INVALID_PARAMETER.into(),
        Refusal::InvalidRelease => Sense::illegal(code::INVALID_RELEASE_OF_PERSISTENT_RESERVATION).into(),
        Refusal::Full => Sense::illegal(code::INSUFFICIENT_REGISTRATION_RESOURCES).into(),
    }
}

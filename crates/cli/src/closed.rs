//! Detection of a standard output that was closed before the program began, for example by `>&-`.
//!
//! Rust's runtime opens `/dev/null` in its place before `main`, and then every write succeeds. So this check runs
//! before the runtime.

use std::sync::atomic::{AtomicBool, Ordering};

static IS_CLOSED: AtomicBool = AtomicBool::new(false);

/// True if standard output was closed when the program began; false if the system cannot tell.
pub fn is_standard_output_closed() -> bool {
    IS_CLOSED.load(Ordering::Relaxed)
}

#[cfg(target_os = "linux")]
extern "C" fn look() {
    let is_there = |descriptor: &str| std::fs::symlink_metadata(descriptor).is_ok();
    IS_CLOSED.store(is_there("/proc/self/fd") && !is_there("/proc/self/fd/1"), Ordering::Relaxed);
}

/// The loader calls the functions in this section before `main`.
// SAFETY: the section holds pointers to functions without arguments, as this is one; it needs nothing that the runtime
// sets up.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

//! The memory allocator of a process that serves.

/// Has all threads share one arena of the GNU C library's allocator. By default there are eight for each processor, each of which keeps what it
/// freed: a server whose clients have large requests would hold several times the memory that requests may take. What is small comes
/// from the cache of each thread, whose lock-free lists this leaves as they are. Does nothing where another C library is, or where
/// the environment says how many arenas there are to be (`MALLOC_ARENA_MAX`).
///
/// To be called before the process has other threads.
pub fn share_one_arena() {
    #[cfg(target_env = "gnu")]
    if std::env::var_os("MALLOC_ARENA_MAX").is_none() {
        one_arena();
    }
}

#[cfg(target_env = "gnu")]
#[allow(unsafe_code)]
fn one_arena() {
    // SAFETY: it sets a parameter of the allocator, which checks its value itself.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

//! The memory allocator of a process that serves.

/// Makes all threads share one arena of the GNU C library's allocator. Memory of at least 4 MiB returns to the system
/// once it is free.
///
/// By default there are eight arenas for each processor, and each keeps freed memory. A server with large requests
/// would hold several times the memory that requests may take. By default too, a freed request of 16 MiB makes the next
/// ones share the heap, where gaps between them add up. Without the limit below which the end of the heap stays, each
/// request of 128 KiB would get it anew from the system. Small memory comes from the cache of each thread, whose
/// lock-free lists stay as they are. Environment variables (`MALLOC_ARENA_MAX`, `MALLOC_MMAP_THRESHOLD_`,
/// `MALLOC_TRIM_THRESHOLD_`) take precedence. Has no effect with another C library.
///
/// Call it before the process has other threads.
pub fn bound_freed_memory() {
    #[cfg(target_env = "gnu")]
    {
        set("MALLOC_ARENA_MAX", libc::M_ARENA_MAX, 1);
        set("MALLOC_MMAP_THRESHOLD_", libc::M_MMAP_THRESHOLD, 4 << 20);
        set("MALLOC_TRIM_THRESHOLD_", libc::M_TRIM_THRESHOLD, 4 << 20);
    }
}

#[cfg(target_env = "gnu")]
#[allow(unsafe_code)]
fn set(variable: &str, parameter: libc::c_int, value: libc::c_int) {
    if std::env::var_os(variable).is_none() {
        // SAFETY: it sets a parameter of the allocator, which checks its value itself.
        unsafe {
            libc::mallopt(parameter, value);
        }
    }
}

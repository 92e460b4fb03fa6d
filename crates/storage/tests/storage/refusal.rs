//! Where io_uring is refused, threads do its work.

use std::sync::Arc;
use std::sync::mpsc::channel;

use flashwise_storage::disk::memory::MemoryDisk;
use flashwise_storage::disk::{Completed, Disk, Method, Operation, Transfer, transfers};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// It takes all file descriptors from its process.
#[test]
fn without_io_uring_threads_do_its_work_and_log_why() {
    flashwise_testing::alone::alone(|| {
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..limit }).unwrap();
        let disks: Vec<Arc<dyn Disk>> = vec![Arc::new(MemoryDisk::new(8192))];
        let (sender, ends) = channel();
        let completed: Completed = Box::new(move |batch| batch.drain(..).for_each(|end| sender.send(end).unwrap()));
        let refused = transfers(disks.clone(), Method::Ring, Box::new(|_| ())).err().unwrap();
        let made = transfers(disks, Method::Automatic, completed).unwrap();
        let operation = Operation::Zero { may_punch_holes: true };
        made.submit(&mut vec![Transfer {
            tag: 5,
            disk: 0,
            operation,
            offset: 0,
            length: 8192,
            buffers: Vec::new(),
            stream: 0,
        }]);
        let end = ends.recv().unwrap();
        setrlimit(Resource::Nofile, limit).unwrap();
        assert_eq!(refused.to_string(), "io_uring: Too many open files (os error 24)");
        assert_eq!(made.description(), "threads, as io_uring is refused: io_uring: Too many open files (os error 24)");
        assert_eq!(end.tag, 5);
        end.result.unwrap();
    });
}

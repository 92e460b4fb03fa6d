//! The test of the history by which a backend without its flash is judged.

use flashwise_testing::history::History;

#[test]
fn a_later_write_needs_what_was_flushed_before_it() {
    let mut history = History::new([0, 0]);
    let first = history.written(0, 1);
    assert_eq!(history.check(&[0, 0]), Ok((0, 0)));
    history.promised([(0, first)]);
    assert_eq!(history.check(&[0, 0]), Ok((0, 1)), "an earlier moment");
    history.written(1, 2);
    assert!(history.check(&[0, 2]).is_err());
    assert_eq!(history.check(&[1, 2]), Ok((1, 1)));
    history.written(0, 3);
    assert_eq!(history.check(&[3, 2]), Ok((1, 1)));
    assert!(history.check(&[4, 2]).is_err(), "never written");
    assert!(history.is_kept(0, &3) && history.is_kept(0, &1) && !history.is_kept(0, &0));
    // A crash loses the last version: the backend has it only at moments before.
    history.settled(0, &1, true);
    assert!(!history.is_kept(0, &3));
    assert!(history.check(&[3, 2]).is_ok());
    history.written(1, 5);
    assert!(history.check(&[3, 5]).is_err());
    assert!(history.check(&[1, 5]).is_ok());
}

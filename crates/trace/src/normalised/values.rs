//! Shared values of a column, from a mapped file or a vector.

use std::marker::PhantomData;
use std::ops::Deref;

use bytemuck::Pod;
use bytes::Bytes;

/// Values in memory that clones share. They are aligned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Values<T> {
    bytes: Bytes,
    values: PhantomData<T>,
}

impl<T: Pod + Send> Values<T> {
    /// Creates the values that `bytes` hold; an incomplete last value is dropped. They are copied only if they are not
    /// aligned.
    pub fn of_bytes(bytes: Bytes) -> Values<T> {
        let whole = bytes.slice(..bytes.len() / size_of::<T>() * size_of::<T>());
        if whole.as_ptr().cast::<T>().is_aligned() {
            Values { bytes: whole, values: PhantomData }
        } else {
            bytemuck::pod_collect_to_vec::<u8, T>(&whole).into()
        }
    }

    /// Returns their bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns `count` values from number `start` on, without copying.
    pub fn slice(&self, start: usize, count: usize) -> Values<T> {
        Values::of_bytes(self.bytes.slice(start * size_of::<T>()..(start + count) * size_of::<T>()))
    }
}

impl<T: Pod> Deref for Values<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        bytemuck::cast_slice(&self.bytes)
    }
}

impl<T: Pod + Send> From<Vec<T>> for Values<T> {
    fn from(values: Vec<T>) -> Values<T> {
        struct Owner<T>(Vec<T>);
        impl<T: Pod> AsRef<[u8]> for Owner<T> {
            fn as_ref(&self) -> &[u8] {
                bytemuck::cast_slice(&self.0)
            }
        }
        Values { bytes: Bytes::from_owner(Owner(values)), values: PhantomData }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shared_where_they_are_aligned_and_copied_elsewhere() {
        let all: Values<u32> = vec![1, 2, 3, 4].into();
        let some = all.slice(1, 2);
        assert_eq!((&some[..], some.as_ptr()), (&[2, 3][..], all[1..].as_ptr()));
        let odd = Values::<u32>::of_bytes(all.bytes().slice(1..14));
        assert_eq!(odd[..], [2 << 24, 3 << 24, 4 << 24]);
        for empty in [Vec::new().into(), all.slice(4, 0), all.slice(0, 0), Values::of_bytes(Bytes::new())] {
            assert_eq!(empty[..], [] as [u32; 0]);
        }
        assert_eq!(all.slice(0, 4), all);
    }
}

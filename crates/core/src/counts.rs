//! Structs of counts: differences, sums and scales are made of their fields.

/// Counts that can be combined, one by one, with others of the same kind.
pub trait Count: Copy {
    /// Returns the counts that `combine` makes of each count and the same one in `other`.
    fn combined(self, other: Self, combine: &impl Fn(u64, u64) -> u64) -> Self;

    /// Returns the counts that `change` makes of each.
    fn each(self, change: impl Fn(u64) -> u64) -> Self {
        self.combined(self, &|count, _| change(count))
    }
}

impl Count for u64 {
    #[inline]
    fn combined(self, other: u64, combine: &impl Fn(u64, u64) -> u64) -> u64 {
        combine(self, other)
    }
}

impl<C: Count, const LEN: usize> Count for [C; LEN] {
    #[inline]
    fn combined(self, other: [C; LEN], combine: &impl Fn(u64, u64) -> u64) -> [C; LEN] {
        std::array::from_fn(|at| self[at].combined(other[at], combine))
    }
}

/// Absent counts stay absent; `other` may lack them.
impl<C: Count + Default> Count for Option<C> {
    #[inline]
    fn combined(self, other: Option<C>, combine: &impl Fn(u64, u64) -> u64) -> Option<C> {
        self.map(|counts| counts.combined(other.unwrap_or_default(), combine))
    }
}

/// Declares structs whose fields are [counts](Count). A difference has the counts since an earlier moment; a sum has
/// those of two runs.
#[macro_export]
macro_rules! counts {
    ($($(#[$about:meta])* pub struct $name:ident { $($(#[$doc:meta])* $visibility:vis $count:ident: $type:ty,)* })*) => {$(
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$doc])* $visibility $count: $type,)*
        }

        impl $crate::counts::Count for $name {
            #[inline]
            fn combined(self, other: $name, combine: &impl Fn(u64, u64) -> u64) -> $name {
                $name { $($count: $crate::counts::Count::combined(self.$count, other.$count, combine),)* }
            }
        }

        impl std::ops::Sub for $name {
            type Output = $name;

            fn sub(self, before: $name) -> $name {
                $crate::counts::Count::combined(self, before, &|now, before| now - before)
            }
        }

        impl std::ops::Add for $name {
            type Output = $name;

            fn add(self, other: $name) -> $name {
                $crate::counts::Count::combined(self, other, &|one, other| one + other)
            }
        }

        impl std::ops::AddAssign for $name {
            fn add_assign(&mut self, other: $name) {
                *self = *self + other;
            }
        }
    )*};
}

#[cfg(test)]
mod tests {
    use super::Count;

    counts! {
        /// Counts with parts.
        pub struct Whole {
            own: u64,
            by_op: [u64; 2],
            part: Option<Part>,
        }
        /// A part.
        pub struct Part {
            own: u64,
        }
    }

    #[test]
    fn each_count_is_combined_with_the_same_one_of_the_other() {
        let counts = |part| Whole { own: 5, by_op: [7, 9], part };
        let (all, few) = (counts(Some(Part { own: 3 })), counts(None));
        assert_eq!(all - few, Whole { own: 0, by_op: [0, 0], part: Some(Part { own: 3 }) });
        assert_eq!(few + all, Whole { own: 10, by_op: [14, 18], part: None });
        assert_eq!(all.each(|count| 2 * count), all + all);
        let mut sum = all;
        sum += few;
        assert_eq!(sum, Whole { own: 10, by_op: [14, 18], part: Some(Part { own: 3 }) });
    }
}

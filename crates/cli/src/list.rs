//! Lists in one argument: `lru,larc:fill=ghost,writes=admit,arc` are three policies.

use std::collections::HashSet;
use std::fmt::{Debug, Display};
use std::str::FromStr;

/// Items separated by commas. The options of an item are separated by commas too, so `name=value` belongs to the item
/// before it.
#[derive(Clone, Debug)]
pub struct List<T>(Vec<T>);

/// The reason why a list is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListError<E: Debug + Display> {
    /// An item between commas, or before or after one, is empty.
    #[error("item {number} of '{list}' is empty; give a name or remove a comma")]
    Empty { list: String, number: usize },
    /// An item is invalid.
    #[error("{0}")]
    Item(E),
}

impl<T: FromStr<Err: Debug + Display>> FromStr for List<T> {
    type Err = ListError<T::Err>;

    fn from_str(text: &str) -> Result<List<T>, ListError<T::Err>> {
        List::read(text, str::parse)
    }
}

impl<T> List<T> {
    /// Reads each item with `read`.
    pub fn read<E: Debug + Display>(text: &str, read: impl Fn(&str) -> Result<T, E>) -> Result<List<T>, ListError<E>> {
        let items = items(text);
        if let Some(at) = items.iter().position(|item| item.is_empty()).filter(|_| items.len() > 1) {
            return Err(ListError::Empty { list: text.to_owned(), number: at + 1 });
        }
        items.into_iter().map(read).collect::<Result<_, _>>().map(List).map_err(ListError::Item)
    }
}

/// Returns each item of the lists once. Two spellings of one item count as the same.
pub fn distinct<T: Clone + ToString>(lists: &[List<T>]) -> Vec<T> {
    let mut seen = HashSet::new();
    lists.iter().flatten().filter(|item| seen.insert(item.to_string())).cloned().collect()
}

impl<'a, T> IntoIterator for &'a List<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

/// The items of a list.
fn items(text: &str) -> Vec<&str> {
    // An option has its `=` before any `:`.
    let is_option = |piece: &str| piece.find('=').is_some_and(|equals| !piece[..equals].contains(':'));
    let mut items = Vec::new();
    let (mut begin, mut end) = (0, 0);
    for piece in text.split(',') {
        let after = end + piece.len();
        if end > begin && !is_option(piece) {
            items.push(&text[begin..end - 1]);
            begin = end;
        }
        end = after + 1;
    }
    items.push(&text[begin..text.len()]);
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_of_several_lists_is_there_once() {
        let lists = ["larc,lru", "lru,min"].map(|text| text.parse::<List<String>>().unwrap());
        assert_eq!(distinct(&lists), ["larc", "lru", "min"]);
    }

    #[test]
    fn an_empty_item_is_named() {
        let refused = |text: &str| text.parse::<List<u8>>().unwrap_err().to_string();
        let empty = |number, list| format!("item {number} of '{list}' is empty; give a name or remove a comma");
        for (text, number) in [("1,", 2), (",1", 1), ("1,,2", 2)] {
            assert_eq!(refused(text), empty(number, text));
        }
        // An empty argument is one item, which its parser refuses.
        assert_eq!(refused(""), "cannot parse integer from empty string");
        assert_eq!(refused("1,x"), "invalid digit found in string");
    }

    #[test]
    fn options_stay_with_their_item() {
        for (text, expected) in [
            ("lru", &["lru"][..]),
            ("lru,larc", &["lru", "larc"]),
            ("larc:fill=ghost,writes=admit,lru", &["larc:fill=ghost,writes=admit", "lru"]),
            ("lru,larc:fill=ghost,arc", &["lru", "larc:fill=ghost", "arc"]),
            ("m+,c:buffers=8,c:buffers=9", &["m+", "c:buffers=8", "c:buffers=9"]),
            // Errors within an item are left to its parser.
            ("", &[""]),
            ("lru,", &["lru", ""]),
            ("lru,fill=ghost", &["lru,fill=ghost"]),
        ] {
            assert_eq!(items(text), expected, "{text}");
        }
    }
}

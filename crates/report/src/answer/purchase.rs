//! Purchases that hold a cache: RAM, and drives in the sizes that are sold, at the prices of the example catalogue.

use flashwise_core::human;
use flashwise_device::offers::{Catalogue, Offer};
use flashwise_sim::advise::money;

const GIB: u64 = 1 << 30;

/// The statement about prices that goes with every purchase.
pub const PRICES: &str = "assumed, those of flashwise advise --print-catalogue";

/// Something that is sold and holds a cache.
#[derive(Clone, Debug, PartialEq)]
pub struct Purchase {
    /// Its name in a sentence.
    pub name: String,
    /// Its price.
    pub price: f64,
    /// The currency of the price.
    currency: String,
    /// Its size in bytes.
    pub capacity_bytes: u64,
    /// Bytes that it can be written before it is worn out; `None` for RAM, which does not wear out.
    pub endurance_bytes: Option<f64>,
}

impl Purchase {
    /// Returns the cheapest drives that hold this many bytes.
    pub fn flash(bytes: u64) -> Purchase {
        cheapest(&Catalogue::example(), bytes, false)
    }

    /// Returns the cheapest purchase that holds this many bytes: RAM in whole GiB, or drives.
    pub fn any(bytes: u64) -> Purchase {
        cheapest(&Catalogue::example(), bytes, true)
    }

    /// True if it is RAM.
    pub fn is_ram(&self) -> bool {
        self.endurance_bytes.is_none()
    }

    /// Formats the price.
    pub fn price(&self) -> String {
        money(self.price, &self.currency)
    }
}

fn cheapest(catalogue: &Catalogue, bytes: u64, with_ram: bool) -> Purchase {
    let gib = bytes.div_ceil(GIB).max(1);
    let ram = Purchase {
        name: format!("{gib} GiB of RAM"),
        price: gib as f64 * catalogue.ram_price_per_gib,
        currency: catalogue.currency.clone(),
        capacity_bytes: gib * GIB,
        endurance_bytes: None,
    };
    // Of drives with equal prices, take the larger one.
    let drives = catalogue.offers.iter().rev().map(|offer| drives(offer, bytes, &catalogue.currency));
    let all = drives.chain(with_ram.then_some(ram));
    let price = |purchase: &Purchase| (purchase.price * 100.0).round() as u64;
    all.min_by_key(price).expect("a catalogue has offers")
}

/// Returns as many of an offer as hold this many bytes.
fn drives(offer: &Offer, bytes: u64, currency: &str) -> Purchase {
    let number = bytes.div_ceil(offer.capacity_bytes()).max(1);
    let tier = &offer.model.tier;
    let capacity_bytes = number * offer.capacity_bytes();
    let number_of = if number == 1 { String::new() } else { format!("{} of ", human::count(number)) };
    Purchase {
        name: format!("{number_of}{}", offer.name),
        price: number as f64 * offer.price,
        currency: currency.to_owned(),
        capacity_bytes,
        endurance_bytes: Some(capacity_bytes as f64 * tier.device.endurance_cycles / tier.write_amplification),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything that the example catalogue sells, one drive or several.
    fn all(bytes: u64) -> Vec<(u64, f64)> {
        let catalogue = Catalogue::example();
        let numbers = catalogue.offers.iter().flat_map(|offer| {
            (1..40_u64).map(move |number| (number * offer.capacity_bytes(), number as f64 * offer.price))
        });
        let ram = (1..200_u64).map(|gib| (gib * GIB, gib as f64 * catalogue.ram_price_per_gib));
        numbers.chain(ram).filter(|(capacity, _)| *capacity >= bytes).collect()
    }

    #[test]
    fn nothing_that_is_sold_holds_as_much_for_less() {
        for bytes in (0..44).map(|power| 1_u64 << power).chain([479_999_999_999, 480_000_000_001, 3_840_000_000_001]) {
            let (any, flash) = (Purchase::any(bytes), Purchase::flash(bytes));
            let least = all(bytes).into_iter().map(|(_, price)| price).fold(f64::INFINITY, f64::min);
            assert!((any.price - least).abs() < 1e-9, "{bytes}: {any:?}");
            assert!(any.capacity_bytes >= bytes && flash.capacity_bytes >= bytes && flash.price >= any.price);
        }
        assert_eq!(Purchase::any(3 << 30).name, "3 GiB of RAM");
        assert_eq!(
            (Purchase::any(20 << 30).name.as_str(), Purchase::any(20 << 30).price()),
            ("read-intensive 480 GB", "76.8 USD".to_owned())
        );
        assert_eq!(Purchase::flash(4_000_000_000_000).name, "9 of read-intensive 480 GB");
    }
}

//! Catalogues of purchases: cache devices in the sizes sold, with prices, endurance and latencies; the storage behind
//! them; RAM. Devices use the keys of all other device files. The buyer provides the prices.

use flashwise_core::format::BLOCK_BYTES;
use flashwise_core::options::{Given, Kind};
use flashwise_core::quantity::ByteSize;
use flashwise_core::tiers::{Tier, YEAR_DAYS};

use crate::catalogue::{DRIVE_KEYS, text_of};
use crate::keys::{ArrayError, Document, Keys};
use crate::tier::{TIER_KEYS, TierModel, tier_model_of_option};

/// The built-in catalogue: an example with assumed prices.
pub const EXAMPLE: &str = include_str!("example-catalogue.toml");
/// Its name in messages.
pub const EXAMPLE_NAME: &str = "the example catalogue";

const TOP_KEYS: [&str; 7] = ["title", "source", "currency", "waiting-price-per-hour", "storage", "ram", "cache"];
const RAM_KEYS: [&str; 2] = ["price-per-gib", "sizes"];
/// Keys of an offer besides those of a device.
const OFFER_KEYS: [&str; 5] = ["name", "price", "price-per-gb", "drive-writes-per-day", "warranty-years"];
/// Default number of years for which drive writes per day are rated.
pub const WARRANTY_YEARS: f64 = 5.0;
/// The most devices that form one cache.
const DEVICES_MAX: u32 = 64;
/// The most sizes, numbers or offers of a list.
const LIST_MAX: usize = 100;

/// The devices and RAM for sale, and the storage that they speed up.
#[derive(Clone, Debug)]
pub struct Catalogue {
    /// Its title.
    pub title: String,
    /// The source of its prices.
    pub source: String,
    /// The currency of its prices.
    pub currency: String,
    /// The price of one hour of waiting, summed over all requests; 0 if only devices cost.
    pub waiting_price_per_hour: f64,
    /// The storage behind the cache.
    pub storage: TierModel,
    /// Data on the storage in bytes, given if moving all of it to flash is an alternative.
    pub data_bytes: Option<f64>,
    /// The price of a GiB of RAM.
    pub ram_price_per_gib: f64,
    /// Sizes of RAM in bytes, ascending.
    pub ram_bytes: Vec<u64>,
    /// The offers, cheapest first.
    pub offers: Vec<Offer>,
}

/// One purchase: a number of equal devices that form one cache.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// The device's name in the catalogue.
    pub name: String,
    /// The devices.
    pub model: TierModel,
    /// The price of all devices together.
    pub price: f64,
}

impl Offer {
    /// Returns the capacity of all devices together.
    pub fn capacity_bytes(&self) -> u64 {
        self.model.tier.capacity_bytes() as u64
    }

    /// Returns the number of devices.
    pub fn devices(&self) -> u64 {
        self.model.tier.devices as u64
    }
}

impl Catalogue {
    /// Reads the file at `path`.
    pub fn read(path: &str) -> Result<Catalogue, ArrayError> {
        Catalogue::parse(path, &text_of(path)?)
    }

    /// Returns the built-in catalogue.
    pub fn example() -> Catalogue {
        Catalogue::parse(EXAMPLE_NAME, EXAMPLE).expect("the example is in order")
    }

    /// Parses a document; messages call it `name`.
    ///
    /// # Errors
    /// Unknown or missing keys and invalid values, with their line.
    pub fn parse(name: &str, text: &str) -> Result<Catalogue, ArrayError> {
        let document = Document::parse(name, text)?;
        let top = document.keys();
        top.check(&TOP_KEYS)?;
        let text = |key, default: &str| Ok::<_, ArrayError>(top.text(key)?.unwrap_or(default).to_owned());
        let storage =
            document.table("storage")?.ok_or_else(|| top.missing("[storage]", "the storage behind the cache"))?;
        let data_gb = storage.number("data-gb", Kind::POSITIVE)?;
        let (ram_price_per_gib, ram_bytes) = match document.table("ram")? {
            Some(keys) => ram(&keys)?,
            None => return Err(top.missing("[ram]", "price-per-gib and sizes")),
        };
        let tables = document.tables("cache")?;
        let mut offers = Vec::new();
        for keys in &tables {
            let of_table = offers_of(keys)?;
            if let Some(twice) = of_table.iter().find(|offer| offers.iter().any(|other| same_name(offer, other))) {
                return Err(
                    keys.refused("name", &format!("a name that no [[cache]] before it has, found '{}'", twice.name))
                );
            }
            offers.extend(of_table);
        }
        if offers.is_empty() {
            return Err(top.missing("[[cache]]", "at least one device that can be bought"));
        }
        offers.sort_by(|one, other| one.price.total_cmp(&other.price));
        Ok(Catalogue {
            title: text("title", name)?,
            source: text("source", "")?,
            currency: text("currency", "")?,
            waiting_price_per_hour: top.number("waiting-price-per-hour", Kind::NOT_NEGATIVE)?.unwrap_or(0.0),
            storage: TierModel::read(&storage.without("data-gb"))?,
            data_bytes: data_gb.map(|gb| gb * 1e9),
            ram_price_per_gib,
            ram_bytes,
            offers,
        })
    }
}

fn same_name(one: &Offer, other: &Offer) -> bool {
    one.name == other.name
}

/// Returns the price of RAM and its sizes.
fn ram(keys: &Keys) -> Result<(f64, Vec<u64>), ArrayError> {
    keys.check(&RAM_KEYS)?;
    let expected = "multiples of 4KiB such as \"256MiB,1GiB\", in ascending order";
    let listed = keys.text("sizes")?.ok_or_else(|| keys.missing("sizes", expected))?;
    let sizes: Option<Vec<u64>> = listed.split(',').map(|size| size.trim().parse().ok().map(ByteSize::bytes)).collect();
    let are_whole = |sizes: &Vec<u64>| sizes.iter().all(|bytes| bytes.is_multiple_of(BLOCK_BYTES as u64));
    let sizes = sizes.filter(|sizes| sizes.is_sorted_by(|one, next| one < next) && sizes.len() <= LIST_MAX);
    let sizes = sizes.filter(are_whole);
    let sizes = sizes.ok_or_else(|| keys.refused("sizes", expected))?;
    Ok((keys.needed("price-per-gib", Kind::NOT_NEGATIVE)?, sizes))
}

/// Returns the numbers that `key` lists; a single number is a list of one.
fn listed(keys: &Keys, key: &str, kind: Kind, expected: &str) -> Result<Option<Vec<f64>>, ArrayError> {
    let Some(text) = keys.text(key)? else { return Ok(None) };
    let numbers: Option<Vec<f64>> = text.split(',').map(|number| Given::from(number).number(kind).ok()).collect();
    let numbers = numbers.filter(|numbers| numbers.is_sorted_by(|one, next| one < next) && numbers.len() <= LIST_MAX);
    numbers.map(Some).ok_or_else(|| keys.refused(key, expected))
}

/// Returns the offers of a table: each size in each number.
fn offers_of(keys: &Keys) -> Result<Vec<Offer>, ArrayError> {
    keys.check(&[&OFFER_KEYS[..], &TIER_KEYS, &DRIVE_KEYS].concat())?;
    let name = keys.text("name")?.ok_or_else(|| keys.missing("name", "the name of the device"))?;
    let sizes = "a size in GB, or a list of sizes in ascending order such as \"480,960\"";
    let sizes = listed(keys, "capacity-gb", Kind::POSITIVE, sizes)?;
    let numbers = "a number of devices, or a list in ascending order such as \"1,2,4\"";
    let numbers = listed(keys, "devices", Kind::Count(1, DEVICES_MAX.into()), numbers)?.unwrap_or_else(|| vec![1.0]);
    let (each, per_gb) = (keys.number("price", Kind::NOT_NEGATIVE)?, keys.number("price-per-gb", Kind::NOT_NEGATIVE)?);
    let is_list = sizes.as_ref().is_some_and(|sizes| sizes.len() > 1);
    if is_list && each.is_some() {
        return Err(keys.refused("price", "price-per-gb where there is a list of sizes"));
    }
    if is_list && keys.has("total-writes-tb") {
        return Err(keys.refused("total-writes-tb", "drive-writes-per-day where there is a list of sizes"));
    }
    let device =
        endurance(OFFER_KEYS.iter().fold(keys.clone(), |keys, key| keys.without(key)).without("devices"), keys)?;
    let mut offers = Vec::new();
    for size in sizes.map_or_else(|| vec![None], |sizes| sizes.into_iter().map(Some).collect()) {
        let device = match size {
            Some(size) => device.clone().without("capacity-gb").with("capacity-gb", size.to_string()),
            None => device.clone(),
        };
        let one = TierModel::read(&device)?;
        let gb = one.tier.device.capacity_bytes / 1e9;
        let price = match (each, per_gb) {
            (Some(price), None) => price,
            (None, Some(price)) => price * gb,
            (Some(_), Some(_)) => return Err(keys.refused("price", "price or price-per-gb, not both")),
            (None, None) => return Err(keys.missing("price", "the price of a device, or price-per-gb")),
        };
        for &devices in &numbers {
            let tier = Tier { devices, ..one.tier };
            // Format and parse the model again, so that the simulation and the configuration agree to the last bit.
            let model = tier_model_of_option(name, &TierModel { tier, ..one }.to_string())?;
            let name = if is_list { format!("{name} {gb} GB") } else { name.to_owned() };
            offers.push(Offer { name, model, price: price * devices });
        }
    }
    Ok(offers)
}

/// Returns the keys of a device, with drive writes per day converted to endurance cycles.
fn endurance(device: Keys, keys: &Keys) -> Result<Keys, ArrayError> {
    let years = keys.number("warranty-years", Kind::POSITIVE)?;
    let Some(per_day) = keys.number("drive-writes-per-day", Kind::POSITIVE)? else {
        return match years {
            Some(_) => Err(keys.refused("warranty-years", "drive-writes-per-day with it")),
            None => Ok(device),
        };
    };
    if let Some(key) = ["endurance-cycles", "total-writes-tb"].into_iter().find(|key| keys.has(key)) {
        return Err(keys.refused(key, "one endurance: endurance-cycles, total-writes-tb or drive-writes-per-day"));
    }
    Ok(device.with("endurance-cycles", (per_day * YEAR_DAYS * years.unwrap_or(WARRANTY_YEARS)).to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REST: &str = "[storage]\ndevice = \"hdd\"\n[ram]\nprice-per-gib = 4\nsizes = \"1GiB\"\n";

    fn offers(cache: &str) -> Result<Vec<Offer>, String> {
        let text = format!("{REST}{cache}");
        Catalogue::parse("ours.toml", &text).map(|catalogue| catalogue.offers).map_err(|error| error.to_string())
    }

    #[test]
    fn each_size_and_number_is_an_offer_by_price() {
        let cache = "[[cache]]\nname = \"a\"\ndevice = \"p4500\"\ncapacity-gb = \"500,1000\"\nprice-per-gb = \
            0.2\ndrive-writes-per-day = 2\n\
                     warranty-years = 3\ndevices = \"1,2\"\n[[cache]]\nname = \"b\"\ndevice = \"p4800x\"\nprice = \
                     150\n";
        let found = offers(cache).unwrap();
        let told: Vec<_> = found.iter().map(|offer| (&offer.name[..], offer.devices(), offer.price)).collect();
        let expected = [("a 500 GB", 1, 100.0), ("b", 1, 150.0), ("a 500 GB", 2, 200.0), ("a 1000 GB", 1, 200.0)];
        assert_eq!((&told[..4], told.len()), (&expected[..], 5));
        // 2 drive writes per day for 3 years of 365 days; two devices hold twice as much.
        let (one, two) = (&found[0], &found[2]);
        assert_eq!(one.model.tier.device.endurance_cycles, 2190.0);
        assert_eq!((one.capacity_bytes(), two.capacity_bytes()), (500_000_000_000, 1_000_000_000_000));
        assert_eq!(found[1].model.tier.device.endurance_cycles, 54_750.0);
    }

    #[test]
    fn a_device_is_read_again_as_it_is_written() {
        for offer in Catalogue::example().offers {
            assert_eq!(tier_model_of_option("test", &offer.model.to_string()).unwrap(), offer.model);
        }
        let unlimited = offers("[[cache]]\nname = \"c\"\ndevice = \"cloud\"\nprice = 1\n").unwrap();
        assert_eq!(tier_model_of_option("test", &unlimited[0].model.to_string()).unwrap(), unlimited[0].model);
    }

    #[test]
    fn invalid_offers_are_refused_with_their_line() {
        let cases = [
            ("", "ours.toml: [[cache]] is missing, expected at least one device that can be bought"),
            (
                "[[cache]]\nname = \"a\"\ndevice = \"p4500\"\n",
                "ours.toml [[cache]] 1: price is missing, expected the price of a device, or price-per-gb",
            ),
            (
                "[[cache]]\nname = \"a\"\ndevice = \"p4500\"\nprice = -1\n",
                "ours.toml [[cache]] 1, line 9: price: found -1, expected a number of at least 0",
            ),
            (
                "[[cache]]\nname = \"a\"\ndevice = \"p4500\"\ncapacity-gb = \"2,1\"\nprice = 1\n",
                "ours.toml [[cache]] 1, line 9: capacity-gb: found '2,1', expected a size in GB, or a list of sizes \
                 in ascending order such as \"480,960\"",
            ),
            (
                "[[cache]]\nname = \"a\"\ndevice = \"p4500\"\nprice = 1\nendurance-cycles = 9\ndrive-writes-per-day = \
                 1\n",
                "ours.toml [[cache]] 1, line 10: endurance-cycles: found 9, expected one endurance: endurance-cycles, \
                 total-writes-tb or drive-writes-per-day",
            ),
            (
                "[[cache]]\nname = \"a\"\ndevice = \"p4500\"\nprise = 1\n",
                "ours.toml [[cache]] 1, line 9: unknown key 'prise' (did you mean 'price'?); expected one of: name, \
                 price, price-per-gb, \
                 drive-writes-per-day, warranty-years, device, devices, write-amplification, capacity-gb, \
                 endurance-cycles, total-writes-tb, \
                 read-latency-ms, write-latency-ms, channels, transfer-mb-per-s",
            ),
        ];
        for (cache, expected) in cases {
            assert_eq!(offers(cache).unwrap_err(), expected);
        }
        let twice = "[[cache]]\nname = \"a\"\ndevice = \"p4500\"\nprice = 1\n";
        assert!(offers(&format!("{twice}{twice}")).unwrap_err().contains("no [[cache]] before it has"));
        let missing = Catalogue::parse("ours.toml", "[ram]\nprice-per-gib = 4\nsizes = \"1GiB\"\n").unwrap_err();
        assert!(missing.to_string().starts_with("ours.toml: [storage] is missing"), "{missing}");
        // 1 GB is not a multiple of 4 KiB.
        let ram = Catalogue::parse("ours.toml", &REST.replace("1GiB", "1GB")).unwrap_err().to_string();
        let expected = "sizes: found '1GB', expected multiples of 4KiB such as \"256MiB,1GiB\", in ascending order";
        assert!(ram.ends_with(expected), "{ram}");
    }

    #[test]
    fn the_example_has_the_sources_of_its_prices() {
        let example = Catalogue::example();
        assert!(example.source.contains("assumed") && !example.currency.is_empty() && example.offers.len() >= 8);
    }
}

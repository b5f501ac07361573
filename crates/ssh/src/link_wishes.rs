//! Number of connections that each named link is to have. The side that asks wishes, the person's side dials.

use std::collections::BTreeMap;

use tokio::sync::watch;

/// Connections beside the first one of each link, of all links of a copy together.
pub(crate) const MOST_FURTHER: usize = 16;

/// Wishes by the names of links: those of more than one connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct LinkWishes(watch::Sender<BTreeMap<String, usize>>);

impl LinkWishes {
    /// So many connections are wanted by this link, the first one included.
    pub(crate) fn set(&self, link: &str, count: usize) {
        let wish = Some(count.min(MOST_FURTHER + 1)).filter(|count| *count > 1);
        self.0.send_if_modified(|wishes| {
            let before = match wish {
                Some(count) => wishes.insert(link.to_owned(), count),
                None => wishes.remove(link),
            };
            before != wish
        });
    }

    /// Connections that are wanted by this link.
    pub(crate) fn of(&self, link: &str) -> usize {
        of(&self.0.borrow(), link)
    }

    /// Tells each change.
    pub(crate) fn subscribe(&self) -> watch::Receiver<BTreeMap<String, usize>> {
        self.0.subscribe()
    }
}

fn of(wishes: &BTreeMap<String, usize>, link: &str) -> usize {
    wishes.get(link).copied().unwrap_or(1)
}

/// Reads wishes one by one, to tell them to the other side.
#[derive(Debug)]
pub struct WishReader {
    wishes: watch::Receiver<BTreeMap<String, usize>>,
    told: BTreeMap<String, usize>,
}

impl WishReader {
    /// Nothing was told.
    pub(crate) fn of(wishes: &LinkWishes) -> Self {
        Self { wishes: wishes.subscribe(), told: BTreeMap::new() }
    }

    /// The next link that is to have another number of connections, and the number; `None` once nobody wishes any more.
    pub async fn next(&mut self) -> Option<(String, usize)> {
        loop {
            if let Some(news) = self.news() {
                return Some(news);
            }
            self.wishes.changed().await.ok()?;
        }
    }

    fn news(&mut self) -> Option<(String, usize)> {
        let wishes = self.wishes.borrow_and_update();
        let differs = |link: &&String| of(&wishes, link) != of(&self.told, link);
        let link = wishes.keys().chain(self.told.keys()).find(differs)?.clone();
        let count = of(&wishes, &link);
        match count {
            1 => drop(self.told.remove(&link)),
            _ => drop(self.told.insert(link.clone(), count)),
        }
        Some((link, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_change_is_told_once_and_the_newest_number() {
        let wishes = LinkWishes::default();
        let mut reader = WishReader::of(&wishes);
        wishes.set("eth0", 1);
        assert_eq!(reader.news(), None, "one is there anyway");
        wishes.set("eth0", 2);
        wishes.set("eth0", 3);
        wishes.set("wlan0", usize::MAX);
        assert_eq!(reader.next().await, Some(("eth0".into(), 3)));
        assert_eq!(reader.next().await, Some(("wlan0".into(), MOST_FURTHER + 1)));
        assert_eq!(reader.news(), None);
        wishes.set("eth0", 1);
        assert_eq!((wishes.of("eth0"), wishes.of("wlan0")), (1, MOST_FURTHER + 1));
        assert_eq!(reader.next().await, Some(("eth0".into(), 1)));
        drop(wishes);
        assert_eq!(reader.next().await, None);
    }
}

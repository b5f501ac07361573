//! Large files that the index does not know: named by a live object at once and hashed while their first pieces
//! travel.

use std::error::Error;
use std::sync::Arc;

use rustix::rand::{GetRandomFlags, getrandom};
use towpath_content::Oid;
use towpath_store::About;

use super::super::threads;
use super::Answering;
use crate::message::{Answers, Message};
use crate::reading::UnreadFile;
use crate::source::Located;
use towpath_content::lock::lock;

impl Answering {
    /// Names a large file by a live object and hashes it meanwhile.
    pub(super) fn stream(self: &Arc<Self>, entry: u64, located: Located) {
        let this = Arc::clone(self);
        let large = Arc::clone(&self.large);
        self.runtime.spawn(async move {
            let Ok(_permit) = large.acquire_owned().await else { return };
            let working = threads::spawn(move || {
                if let Err(error) = this.stream_blocking(entry, located) {
                    tracing::debug!(%error, "a large file could not be offered");
                }
            });
            let _ = working.await;
        });
    }

    fn stream_blocking(&self, entry: u64, located: Located) -> Result<(), Box<dyn Error>> {
        let mut random = [0; 32];
        getrandom(&mut random[..], GetRandomFlags::empty())?;
        let live = Oid::Live(random);
        let path = located.whole_path();
        let opened = located.open().map_err(UnreadFile::from);
        let answer = match &opened {
            Ok(_) => self.named(entry, located.clone(), live),
            Err(error) => self.refused(entry, &located, error),
        };
        self.send(Message::Answers(Answers { answers: vec![answer] }))?;
        let file = opened?;
        match self.store.put_open_file(file, &path, &live, &About::default()) {
            Ok((content, _)) => {
                // From here on the receiver may ask for it by its content.
                let mut asked = lock(&self.asked);
                if let Some(asked) = asked.get_mut(&entry)
                    && asked.oids.insert(content)
                {
                    self.offers.add(content);
                }
                Ok(())
            }
            Err(error) => {
                let error = UnreadFile::from(error);
                // It stays on offer: the receiver is to learn from the store that it is lost, and may have
                // reported it already.
                if let Some(asked) = lock(&self.asked).get_mut(&entry) {
                    asked.is_told = true;
                    self.tell_failed(&located, &error);
                }
                Err(error.into())
            }
        }
    }
}

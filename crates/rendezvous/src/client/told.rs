//! What one connection has told its server, and what is due next: pure, handed what is wanted and the time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::entry::HolderEntry;
use crate::topic::{Topic, TopicKeys};

/// How long an entry lives. It is said again at half of it.
pub const LIFE: Duration = Duration::from_secs(600);

/// What is wanted under one topic.
#[derive(Debug, Clone)]
pub struct Wish {
    /// Keys of the topic.
    pub keys: TopicKeys,
    /// What this node says there.
    pub entry: Option<HolderEntry>,
}

/// Something to tell the server.
#[derive(Debug, Clone)]
pub enum Due {
    /// This node's entry, or its end.
    Say(TopicKeys, Option<HolderEntry>),
    /// Others' entries are wanted.
    Watch(Topic),
    /// They are wanted no more.
    Unwatch(Topic),
}

/// See the head of this module.
#[derive(Debug, Default)]
pub struct ToldServer(BTreeMap<Topic, ToldTopic>);

#[derive(Debug)]
struct ToldTopic {
    keys: TopicKeys,
    entry: Option<HolderEntry>,
    at: Instant,
}

impl ToldServer {
    /// What is to be told now, which counts as told.
    pub fn due(&mut self, wishes: &BTreeMap<Topic, Wish>, now: Instant) -> Vec<Due> {
        let mut due = Vec::new();
        self.0.retain(|topic, told| {
            let stays = wishes.contains_key(topic);
            if !stays {
                due.extend(told.entry.take().map(|_| Due::Say(told.keys.clone(), None)));
                due.push(Due::Unwatch(*topic));
            }
            stays
        });
        for (topic, wish) in wishes {
            let told = self.0.entry(*topic).or_insert_with(|| {
                due.push(Due::Watch(*topic));
                ToldTopic { keys: wish.keys.clone(), entry: None, at: now }
            });
            let is_old = told.entry.is_some() && now.saturating_duration_since(told.at) >= LIFE / 2;
            if told.entry != wish.entry || is_old {
                (told.entry, told.at) = (wish.entry.clone(), now);
                due.push(Due::Say(wish.keys.clone(), wish.entry.clone()));
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_content::Oid;
    use towpath_content::ticket::Secret;

    fn shown(due: &[Due]) -> Vec<String> {
        let each = due.iter().map(|due| match due {
            Due::Say(_, Some(entry)) => format!("say {}", entry.has),
            Due::Say(_, None) => "end".to_owned(),
            Due::Watch(_) => "watch".to_owned(),
            Due::Unwatch(_) => "unwatch".to_owned(),
        });
        each.collect()
    }

    #[test]
    fn only_news_is_told_and_what_holds_is_said_again_before_it_is_over() {
        let keys = TopicKeys::new(&Oid::of(b"root"), &Secret([1; 16]).into());
        let wishes = |has: Option<u16>| {
            let entry = has.map(|has| HolderEntry { has, ..HolderEntry::default() });
            BTreeMap::from([(keys.topic(), Wish { keys: keys.clone(), entry })])
        };
        let (mut told, start) = (ToldServer::default(), Instant::now());
        let mut due = |at, wishes| shown(&told.due(&wishes, start + Duration::from_secs(at))).join(", ");
        let rows = [
            (0, None, "watch"),
            (1, None, ""),
            (2, Some(1), "say 1"),
            (3, Some(1), ""),
            (4, Some(2), "say 2"),
            (303, Some(2), ""),
            (304, Some(2), "say 2"),
        ];
        for (at, has, expected) in rows {
            assert_eq!(due(at, wishes(has)), expected, "at {at} s");
        }
        assert_eq!(due(305, BTreeMap::new()), "end, unwatch");
        assert_eq!(due(306, BTreeMap::new()), "");
    }
}

//! A map that can take back everything since the last commit.
//!
//! The hub changes its memory and its ledger together. When the disk refuses the ledger's half,
//! the memory's half is rolled back with it, so that the two never tell different stories.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// A map with an undo log of whole values.
pub(super) struct Tracked<K, V> {
    live: BTreeMap<K, V>,
    /// What each touched key held at the last commit.
    before: HashMap<K, Option<V>>,
}

impl<K: Ord + Hash + Clone, V: Clone> Tracked<K, V> {
    pub(super) fn new() -> Self {
        Self { live: BTreeMap::new(), before: HashMap::new() }
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.live.get(key)
    }

    /// The value to change; what it was is remembered.
    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let value = self.live.get_mut(key)?;
        if !self.before.contains_key(key) {
            self.before.insert(key.clone(), Some(value.clone()));
        }
        Some(value)
    }

    pub(super) fn insert(&mut self, key: K, value: V) {
        let old = self.live.insert(key.clone(), value);
        self.before.entry(key).or_insert(old);
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        let old = self.live.remove(key)?;
        self.before.entry(key.clone()).or_insert_with(|| Some(old.clone()));
        Some(old)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.live.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.live.len()
    }

    /// The keys whose values fit, so that the map can be changed while going through them.
    pub(super) fn keys_where(&self, fits: impl Fn(&K, &V) -> bool) -> Vec<K> {
        self.live.iter().filter(|(key, value)| fits(key, value)).map(|(key, _)| key.clone()).collect()
    }

    /// What is so now stays so.
    pub(super) fn commit(&mut self) {
        self.before.clear();
    }

    /// Back to the last commit.
    pub(super) fn roll_back(&mut self) {
        for (key, old) in self.before.drain() {
            match old {
                Some(old) => self.live.insert(key, old),
                None => self.live.remove(&key),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Change {
        Insert(u8, u8),
        Add(u8),
        Remove(u8),
    }

    fn change() -> impl Strategy<Value = Change> {
        prop_oneof![
            (0..6u8, any::<u8>()).prop_map(|(key, value)| Change::Insert(key, value)),
            (0..6u8).prop_map(Change::Add),
            (0..6u8).prop_map(Change::Remove),
        ]
    }

    proptest! {
        #[test]
        fn rolling_back_restores_what_was_committed(
            first in prop::collection::vec(change(), 0..20),
            second in prop::collection::vec(change(), 0..20),
        ) {
            let mut map = Tracked::new();
            let apply = |map: &mut Tracked<u8, u8>, changes: Vec<Change>| {
                for change in changes {
                    match change {
                        Change::Insert(key, value) => map.insert(key, value),
                        Change::Add(key) => map.get_mut(&key).into_iter().for_each(|value| *value = value.wrapping_add(1)),
                        Change::Remove(key) => drop(map.remove(&key)),
                    }
                }
            };
            apply(&mut map, first);
            map.commit();
            let committed = map.live.clone();
            apply(&mut map, second);
            map.roll_back();
            prop_assert_eq!(&map.live, &committed);
        }
    }
}

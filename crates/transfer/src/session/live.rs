//! Live objects: what the ticket's node signs of them while they grow.

use towpath_content::Oid;
use towpath_content::codec::invalid;
use towpath_content::live::Statement;
use towpath_content::pieces::{Layout, MIN_LOG2, Value};

use super::FetchError;
use super::active::{Active, ObjectPhase};
use super::actor::Actor;
use crate::want::ObjectKey;

impl Actor {
    /// A signed statement about a live object.
    pub(super) fn stated(
        &mut self,
        key: ObjectKey,
        statement: Statement,
        signature: &[u8],
    ) -> Result<(), FetchError> {
        let Some(active) = self.table.objects.get_mut(&key) else { return Ok(()) };
        let unknown = invalid("statement", "cannot be checked: the node that signs it is not known");
        let node = self.node.ok_or(unknown)?;
        let statement = Statement::verified(&statement.to_bytes(), signature, &node)?;
        if *statement.object() != active.object.oid {
            return Ok(());
        }
        match statement {
            Statement::Values { generation, first, values, .. } => {
                active.take_values(generation, first, &values)?
            }
            Statement::Bound { content, size, .. } => {
                self.bound(key, content, size)?;
                if let Some(active) = self.table.objects.get_mut(&key) {
                    active.binding = Some((statement, signature.to_vec()));
                    active.tell_binding();
                }
            }
        }
        // All of it may be here before it is bound.
        self.advance(key);
        Ok(())
    }

    fn bound(&mut self, key: ObjectKey, content: Oid, size: u64) -> Result<(), FetchError> {
        let Some(active) = self.table.objects.get_mut(&key) else { return Ok(()) };
        if active.object.layout().is_some() {
            return Ok(());
        }
        let layout = Layout::of(size).map_err(FetchError::TooLarge)?;
        if !active.may_be_bound(&layout) {
            return Err(FetchError::BindingWrong);
        }
        active.object.bind(content, layout);
        self.table.progress.expected(size);
        if active.phase == ObjectPhase::Fetching && !active.existing.is_empty() && layout.count() > 1 {
            active.phase = ObjectPhase::Proving;
            self.ask_for_values(key);
        } else if active.announced.is_some() && layout.count() > 1 {
            // Whoever reads a piece by its content's name needs its proof, which takes all values.
            self.ask_for_values(key);
        }
        Ok(())
    }
}

impl Active {
    /// Hands on what a live object became, if that is known and others may read it.
    pub(super) fn tell_binding(&self) {
        if let (Some(announced), Some((statement, signature))) = (&self.announced, &self.binding) {
            announced.bound(statement, signature);
        }
    }

    fn take_values(&mut self, generation: u64, first: u64, values: &[Value]) -> Result<(), FetchError> {
        if self.generation.is_some_and(|known| known != generation)
            || !self.object.learn_values(first, values)
        {
            return Err(FetchError::StartedOver);
        }
        self.generation = Some(generation);
        if first <= self.signed {
            self.signed = self.signed.max(first + values.len() as u64);
        }
        Ok(())
    }

    /// True if an object of this layout may be what was signed so far: whole pieces, and of the
    /// first one a value only once a further byte was known.
    fn may_be_bound(&self, layout: &Layout) -> bool {
        self.signed == 0 || layout.count() > 1 && self.signed << MIN_LOG2 <= layout.size()
    }
}

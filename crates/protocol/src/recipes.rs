//! Sends a recipe, part by part: its root, then its nodes as whoever walks through it needs them.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use towpath_content::recipe::{Entries, MAX_NODE_LEN, NodeHash, RecipeNode};
use towpath_store::RecipeNodes;
use towpath_transfer::Outcome;

use super::wire::MAX_RECIPE_PART;

/// The rest of a recipe that is to be sent.
pub(super) struct RecipeSending {
    recipe: Arc<dyn RecipeNodes>,
    /// Until it is sent.
    root: Option<Bytes>,
    /// Nodes to be sent, the next one last: below each node on the way down those to its right.
    nodes: Vec<NodeHash>,
}

type RecipeStep = (Option<Bytes>, Vec<Bytes>);

impl RecipeSending {
    pub(super) fn new(recipe: Arc<dyn RecipeNodes>) -> Self {
        let (root, nodes) = (recipe.root().to_bytes().into(), vec![recipe.root().top]);
        Self { recipe, root: Some(root), nodes }
    }

    /// The next part; `None` after the last.
    pub(super) fn next_part(&mut self) -> Result<Option<RecipeStep>, Outcome> {
        let (root, mut nodes) = (self.root.take(), Vec::new());
        let mut len = root.as_ref().map_or(0, Bytes::len);
        while len + MAX_NODE_LEN <= MAX_RECIPE_PART
            && let Some(hash) = self.nodes.pop()
        {
            // The recipe can be had anew, if anything is in the way.
            let node = self.node(&hash).map_err(|_| Outcome::NotHere)?;
            len += node.len();
            nodes.push(node);
        }
        Ok((root.is_some() || !nodes.is_empty()).then_some((root, nodes)))
    }

    fn node(&mut self, hash: &NodeHash) -> io::Result<Bytes> {
        let bytes = self.recipe.node(hash)?.ok_or(io::ErrorKind::NotFound)?;
        let node = RecipeNode::from_bytes(&bytes).map_err(io::Error::other)?;
        if let Entries::Children(children) = node.entries() {
            self.nodes.extend(children.iter().rev().map(|child| child.hash));
        }
        Ok(bytes.into())
    }
}

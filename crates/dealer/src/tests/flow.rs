//! Largest flow through a network of pipes (Dinic's algorithm).

/// Pipe that carries anything.
pub const ANY: f64 = f64::INFINITY;
/// Less than this is nothing.
const LEAST: f64 = 1e-3;

#[derive(Debug, Clone)]
struct Pipe {
    to: usize,
    room: f64,
}

#[derive(Debug, Default)]
pub struct Flow {
    /// Each with its opposite behind it.
    pipes: Vec<Pipe>,
    from: Vec<Vec<usize>>,
}

impl Flow {
    pub fn node(&mut self) -> usize {
        self.from.push(Vec::new());
        self.from.len() - 1
    }

    pub fn pipe(&mut self, from: usize, to: usize, room: f64) {
        self.from[from].push(self.pipes.len());
        self.pipes.push(Pipe { to, room });
        self.from[to].push(self.pipes.len());
        self.pipes.push(Pipe { to: from, room: 0.0 });
    }

    pub fn largest(&mut self, source: usize, sink: usize) -> f64 {
        let mut all = 0.0;
        while let Some(level) = self.levels(source, sink) {
            let mut next = vec![0; self.from.len()];
            loop {
                let pushed = self.push(source, sink, ANY, &level, &mut next);
                if pushed < LEAST {
                    break;
                }
                all += pushed;
            }
        }
        all
    }

    fn levels(&self, source: usize, sink: usize) -> Option<Vec<usize>> {
        let mut level = vec![usize::MAX; self.from.len()];
        level[source] = 0;
        let mut queue = std::collections::VecDeque::from([source]);
        while let Some(node) = queue.pop_front() {
            for pipe in self.from[node].iter().map(|&pipe| &self.pipes[pipe]) {
                if pipe.room > LEAST && level[pipe.to] == usize::MAX {
                    level[pipe.to] = level[node] + 1;
                    queue.push_back(pipe.to);
                }
            }
        }
        (level[sink] != usize::MAX).then_some(level)
    }

    fn push(&mut self, node: usize, sink: usize, most: f64, level: &[usize], next: &mut [usize]) -> f64 {
        if node == sink {
            return most;
        }
        while let Some(&pipe) = self.from[node].get(next[node]) {
            let Pipe { to, room } = self.pipes[pipe];
            if room > LEAST && level[to] == level[node] + 1 {
                let pushed = self.push(to, sink, most.min(room), level, next);
                if pushed >= LEAST {
                    self.pipes[pipe].room -= pushed;
                    self.pipes[pipe ^ 1].room += pushed;
                    return pushed;
                }
            }
            next[node] += 1;
        }
        0.0
    }
}

#[test]
fn the_narrowest_cut_decides() {
    let mut flow = Flow::default();
    let nodes: Vec<_> = (0..4).map(|_| flow.node()).collect();
    flow.pipe(nodes[0], nodes[1], 3.0);
    flow.pipe(nodes[0], nodes[2], 2.0);
    flow.pipe(nodes[1], nodes[2], ANY);
    flow.pipe(nodes[1], nodes[3], 1.0);
    flow.pipe(nodes[2], nodes[3], 3.5);
    assert!((flow.largest(nodes[0], nodes[3]) - 4.5).abs() < 1e-6);
}

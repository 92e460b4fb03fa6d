//! A tournament tree: the player with the smallest key out of a fixed number, while keys change.

/// Players `0..count`, each with a key. A lowered key is compared upwards only while it wins: two comparisons on
/// average for a random player, at most the height of the tree.
#[derive(Clone, Debug)]
pub struct Tournament {
    keys: Vec<u64>,
    /// The winner below each node of a complete binary tree with root 1; the leaves, one per player, are not stored.
    winners: Vec<u32>,
}

impl Tournament {
    /// The key of a player that never wins.
    pub const OUT: u64 = u64::MAX;

    /// Creates a tournament of `count` players, all of them out.
    pub fn new(count: u32) -> Tournament {
        assert!(count > 0, "a tournament has a player");
        let leaves = count.next_power_of_two() as usize;
        let mut tournament = Tournament { keys: vec![Self::OUT; leaves], winners: vec![0; leaves] };
        for node in (1..leaves).rev() {
            tournament.winners[node] = tournament.winner_below(2 * node);
        }
        tournament
    }

    /// Returns the player's key.
    #[inline]
    pub fn key(&self, player: u32) -> u64 {
        self.keys[player as usize]
    }

    /// Returns the player with the smallest key, the lowest number among equals; `None` if all are out.
    #[inline]
    pub fn winner(&self) -> Option<u32> {
        let winner = self.winner_below(1);
        (self.key(winner) != Self::OUT).then_some(winner)
    }

    /// Sets the player's key.
    #[inline]
    pub fn set_key(&mut self, player: u32, key: u64) {
        let lowered = key <= self.key(player);
        self.keys[player as usize] = key;
        let mut node = (self.winners.len() + player as usize) / 2;
        while node > 0 {
            let winner = self.better(self.winner_below(2 * node), self.winner_below(2 * node + 1));
            self.winners[node] = winner;
            if lowered && winner != player {
                return;
            }
            node /= 2;
        }
    }

    #[inline]
    fn winner_below(&self, node: usize) -> u32 {
        match node.checked_sub(self.winners.len()) {
            Some(player) => player as u32,
            None => self.winners[node],
        }
    }

    #[inline]
    fn better(&self, left: u32, right: u32) -> u32 {
        if self.key(right) < self.key(left) { right } else { left }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_winner_is_the_first_player_with_the_smallest_key_after_any_change() {
        let mut state = 1_u32;
        for count in [1, 2, 3, 7, 8, 100] {
            let mut tournament = Tournament::new(count);
            let mut keys = vec![Tournament::OUT; count as usize];
            for _ in 0..5_000 {
                let best = (0..count).min_by_key(|&player| keys[player as usize]).expect("there is a player");
                let winner = (keys[best as usize] != Tournament::OUT).then_some(best);
                assert_eq!(tournament.winner(), winner, "of {count}, whose keys are {keys:?}");
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let player = (state >> 8) % count;
                let key = if state >> 30 == 0 { Tournament::OUT } else { u64::from(state >> 25 & 15) };
                keys[player as usize] = key;
                tournament.set_key(player, key);
                assert_eq!(tournament.key(player), key);
            }
        }
    }
}

package sim

import "time"

// backUp copies the database every 40 s, until the calm.
func (s *server) backUp() {
	s.backup = s.backup[:0]
	for _, b := range s.bundles {
		s.backup = append(s.backup, *b)
	}
	if s.w.now < calm {
		s.w.at(40*time.Second, s.backUp)
	}
}

// restore replaces the database by the copy.
func (s *server) restore() {
	s.w.logf("server", "restored; it knows %d of %d bundles", len(s.backup), len(s.bundles))
	s.w.hampered = s.w.now // it has lost the reports since the copy
	s.bundles = s.bundles[:len(s.backup)]
	for i, old := range s.backup {
		now := s.bundles[i]
		old.upload, old.lost = now.upload, now.lost // contents are files, which a database does not restore
		if old.command != now.command {
			old.upload, old.lost = nil, ""    // it was deleted, with its contents
			delete(s.w.verdicts, old.command) // and with its row, so it runs again
		}
		// The bridge's rows stay as they are: the ledger may have been lost, or the bridge
		// may have let the bundle go ("Not promised" of I8 in docs/contributors/reliability.md).
		row, ok := s.w.ledger.row(old.uuid)
		ok = ok && !row.Dropped && row.Run.Command == old.command
		// A late report may give a deleted bundle to a worker, although the bridge has, or is about to get,
		// the other bundle of its UUID.
		deleted := old.command != now.command
		old.forgiven = now.forgiven || deleted || old.state.OnWorker() && !ok
		*s.bundles[i] = old
	}
	for _, q := range s.w.queues {
		s.promptCheckIn(q.Name)
	}
}

// forgive excuses the bundles that the bridge's ledger has lost.
func (s *server) forgive() {
	for _, b := range s.bundles {
		b.forgiven = b.forgiven || s.w.isUnknown(b.command)
	}
}

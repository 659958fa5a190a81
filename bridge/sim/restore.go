package sim

import "time"

// backUp copies the database now and then.
func (s *server) backUp() {
	s.backup = s.backup[:0]
	for _, b := range s.bundles {
		s.backup = append(s.backup, *b)
	}
	if s.w.now < calm {
		s.w.at(40*time.Second, s.backUp)
	}
}

// restore puts the copy in the database's place.
func (s *server) restore() {
	s.w.logf("server", "restored; it knows %d of %d bundles", len(s.backup), len(s.bundles))
	s.w.hampered = s.w.now // it does not know what it heard since
	s.bundles = s.bundles[:len(s.backup)]
	for i, old := range s.backup {
		now := s.bundles[i]
		old.upload, old.lost = now.upload, now.lost // contents are files, which no database brings back
		if old.command != now.command {
			old.upload, old.lost = nil, ""    // it was deleted, with its contents
			delete(s.w.verdicts, old.command) // and with its row, so it runs again
		}
		// The bridge's rows stay as they are: the ledger may have been lost, or the bridge
		// may have let the bundle go ("Not promised" of I8 in docs/contributors/reliability.md).
		row, ok := s.w.ledger.row(old.uuid)
		ok = ok && !row.Dropped && row.Run.Command == old.command
		// One that was deleted may be brought to a worker by a report that comes late, and the bridge may know,
		// or be about to learn, of the other bundle of its UUID.
		deleted := old.command != now.command
		old.forgiven = now.forgiven || deleted || old.state.OnWorker() && !ok
		*s.bundles[i] = old
	}
	for _, q := range s.w.queues {
		s.promptCheckIn(q.Name)
	}
}

// forgive notes of which bundles the bridge's ledger was lost.
func (s *server) forgive() {
	for _, b := range s.bundles {
		b.forgiven = b.forgiven || s.w.isUnknown(b.command)
	}
}

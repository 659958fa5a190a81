package report

import "time"

// MostBytes bounds the runs of a check-in: some five hundred. Both servers refuse requests of more
// than 8 MiB (codalab/server/rest_server.py: MEMFILE_MAX), and many a proxy those of more than
// 1 MiB (nginx: client_max_body_size).
const MostBytes = 512 << 10

const (
	// slowCheckIn is the duration of a check-in after which the next ones are smaller. CodaLab's own server
	// applies some fifty reports a second, in turn, and holds a check-in for 5 s after that; the client gives
	// up after a minute, and the reports would never be done.
	slowCheckIn = 20 * time.Second
	// quickCheckIn is the duration below which the next ones may be larger.
	quickCheckIn = 10 * time.Second
)

// size bounds the bytes of runs in the next check-in. The server's answers change it.
type size struct {
	// most is at most ceiling, which is half of the smallest check-in that the server refused.
	most, ceiling int
}

// ended learns from a check-in that was answered or has failed.
func (s *size) ended(in *unansweredCheckIn, now time.Time, answered bool) {
	took := now.Sub(in.at)
	switch {
	case took >= slowCheckIn && len(in.reports) > 1:
		s.most = min(s.most, in.bytes/2)
	case took < quickCheckIn && answered && in.full:
		s.most = min(2*s.most, s.ceiling)
	}
}

// refused learns from a check-in that was refused as too large.
func (s *size) refused(in *unansweredCheckIn) {
	s.ceiling = min(s.ceiling, in.bytes/2)
	s.most = min(s.most, s.ceiling)
}

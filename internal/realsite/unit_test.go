package realsite_test

import (
	"strings"
	"testing"
)

// bridgeProcess is the process of the unit.
func (s site) bridgeProcess(t *testing.T) string {
	t.Helper()
	pid := "0"
	await(t, "the unit is active", func() bool {
		out, err := s.try(t.Context(), loginRoot, "systemctl --user --machine=researcher@ show --value --property=MainPID,ActiveState cl-bridge")
		fields := strings.Fields(out)
		if err != nil || len(fields) != 2 || fields[0] == "0" || fields[1] != "active" {
			return false
		}
		pid = fields[0]
		return true
	})
	return pid
}

func TestBridgeIsBackAfterKillAndTakesUpItsRuns(t *testing.T) {
	s := realSite(t)
	bundle := s.run(t, "sleep 20; echo slept")
	s.node(t, bundle)
	before := s.bridgeProcess(t)
	s.on(t, login, "kill -KILL "+before)
	await(t, "systemd has started the bridge again", func() bool { return s.bridgeProcess(t) != before })
	s.ready(t, bundle)
	if jobs := s.jobs(t, bundle); len(jobs) != 1 {
		t.Errorf("the jobs are %v, want one", jobs)
	}
	if got := s.cl(t, "cat", bundle+"/stdout"); got != "slept" {
		t.Errorf("stdout %q", got)
	}
}

// Lingering keeps the bridge when the last session of its user ends.
func TestBridgeOutlivesTheLogoutOfItsUser(t *testing.T) {
	s := realSite(t)
	before := s.bridgeProcess(t)
	s.on(t, loginRoot, `loginctl --no-legend list-sessions | while read -r id uid user rest; do
[ "$user" != researcher ] || loginctl terminate-session "$id"
done`)
	await(t, "no session of the researcher is left", func() bool {
		return !strings.Contains(s.on(t, loginRoot, "loginctl --no-legend list-sessions"), " researcher ")
	})
	if after := s.bridgeProcess(t); after != before {
		t.Errorf("the bridge was process %s, and is %s after the logout", before, after)
	}
	s.control(t, "up")
	s.ready(t, s.run(t, "true"))
}

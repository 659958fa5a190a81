package sbatch

import "testing"

// Answers of Slurm's other commands. A site's plugins and other users' names are in them.
func FuzzAnswers(f *testing.F) {
	f.Add("ClusterName = c\nMinJobAge = 300 sec\nKillWait = 30 sec\nAccountingStorageType = accounting_storage/none\nSlurmctldParameters = rl_enable,rl_bucket_size=30\n")
	f.Add("root|root||normal\nroot|lab|debug|normal,high\n")
	f.Add("|1795169834|p|a|q|1-00:00:00|name|comment\n")
	for _, limit := range []string{"UNLIMITED", "99999-9999:9999:9999", "99999999:99999999:99999999", "10", "1:2", "1-"} {
		f.Add(limit)
	}
	f.Add("7|COMPLETED|100|160|60|billing=4,cpu=4,gres/gpu=2,mem=8G,node=1|3600\n")
	f.Fuzz(func(t *testing.T, text string) {
		if d, err := ParseLimit(text); err == nil && d < 0 {
			t.Errorf("the limit %q is %v", text, d)
		}
		if s, err := parseSettings(text); err == nil && (s.MinJobAge < 0 || s.KillWait < 0 || s.RateLimit.PerSecond < 0 || s.RateLimit.Burst < 0) {
			t.Errorf("%q is %+v", text, s)
		}
		if d, err := parseDetails(text, "|"); err == nil && d.Time < 0 {
			t.Errorf("%q is %+v", text, d)
		}
		charges, _ := parseCharges(text)
		for _, c := range charges {
			if c.ID <= 0 || c.Elapsed < 0 || c.EnergyJoules < 0 || c.Start.IsZero() || c.End.IsZero() {
				t.Errorf("%q has %+v", text, c)
			}
		}
		all, err := parseAssociations(text)
		for _, a := range all {
			if a.Account == "" || err != nil {
				t.Errorf("%q has %+v, %v", text, a, err)
			}
		}
	})
}

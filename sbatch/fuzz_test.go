package sbatch

import "testing"

// Answers of Slurm's other commands. A site's plugins and other users' names are in them.
func FuzzAnswers(f *testing.F) {
	f.Add("ClusterName = c\nMinJobAge = 300 sec\nKillWait = 30 sec\nAccountingStorageType = accounting_storage/none\nSlurmctldParameters = rl_enable,rl_bucket_size=30\nSLURM_VERSION = 24.11.5\n")
	f.Add("root|root||normal\nroot|lab|debug|normal,high\n")
	f.Add("|1795169834|p|a|q|1-00:00:00|name|comment\n")
	for _, limit := range []string{"UNLIMITED", "99999-9999:9999:9999", "99999999:99999999:99999999", "10", "1:2", "1-"} {
		f.Add(limit)
	}
	f.Add("7|COMPLETED|100|160|60|billing=4,cpu=4,gres/gpu=2,mem=8G,node=1|3600\n")
	f.Add("normal|9|11|6-06:00:00|node=3|cpu=50000|mem=9000000M|4|6|cpu=6,mem=10G|5|7|gres/gpu=2|1-06:00:00|cpu=4,gres/gpu=1|cpu=8|cpu=1000\n")
	f.Add("lab|clslurm|lab|researcher|||normal|high,normal||||cpu=12|||2|5|2-00:00:00|cpu=32|mem=64G|\n")
	f.Add("clslurm|lab|||lab|normal|high,normal|20|30|||||||2-00:00:00|cpu=32||\n")
	f.Add("PartitionName=cpu AllowGroups=ALL Default=YES QoS=part DefaultTime=01:00:00\n")
	f.Add(assocMgrTitle + "ClusterName=c Account=lab UserName=researcher(1001) Partition= Priority=0 ID=6\n    GrpJobs=4(3) GrpWall=N(233.62)\n    GrpTRES=cpu=N(3)\n" +
		"QOS=normal(1)\n    Account Limits\n      lab\n        MaxJobsPA=N(3)\n    User Limits\n      1001\n        MaxTRESPU=cpu=6(3)\n")
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
		checkLimits(t, text)
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

// checkLimits reads a text as each of the answers about limits. No limit and no use is below zero, and a circle of accounts
// has an end.
func checkLimits(t *testing.T, text string) {
	t.Helper()
	table := LimitTable{User: "researcher"}
	_, _, _, _ = table.readQOS(text), table.readUser(text, "clslurm"), table.readAccounts(text, "clslurm"), table.readPartitions(text)
	use, _ := parseLimitUse(text)
	for _, l := range use.Fill(table.Of("lab", "", "cpu")) {
		if l.Most < 0 || l.Used < 0 {
			t.Errorf("%q has %+v", text, l)
		}
	}
}

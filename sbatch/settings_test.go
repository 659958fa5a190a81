package sbatch

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSettingsAreReadAsSlurmPrintsThem(t *testing.T) {
	t.Parallel()
	whole := recorded(t, "scontrol-config.txt")
	plain := Settings{Cluster: "clslurm", Version: "22.05.8", Accounting: true, Limits: true, MinJobAge: 300 * time.Second, KillWait: 3 * time.Second, MaxArraySize: 10001}
	with := func(change func(*Settings)) Settings {
		s := plain
		change(&s)
		return s
	}
	for _, c := range []struct {
		was, is string
		want    Settings
	}{
		{"", "", plain},
		{"AccountingStorageType   = accounting_storage/slurmdbd", "AccountingStorageType   = accounting_storage/none", with(func(s *Settings) { s.Accounting, s.Limits = false, false })},
		{"AccountingStorageType   = accounting_storage/slurmdbd", "AccountingStorageType   = (null)", with(func(s *Settings) { s.Accounting, s.Limits = false, false })}, // from 23.02 on
		{"AccountingStorageEnforce = associations,limits,qos,wckeys", "AccountingStorageEnforce = associations,qos", with(func(s *Settings) { s.Limits = false })},
		{"AccountingStorageEnforce = associations,limits,qos,wckeys", "AccountingStorageEnforce = associations,limits,qos,safe", plain},
		{"AccountingStorageEnforce = associations,limits,qos,wckeys", "AccountingStorageEnforce = none", with(func(s *Settings) { s.Limits = false })},
		{"AcctGatherEnergyType    = acct_gather_energy/none", "AcctGatherEnergyType    = acct_gather_energy/ipmi", with(func(s *Settings) { s.Energy = true })},
		{"AcctGatherEnergyType    = acct_gather_energy/none", "AcctGatherEnergyType    = (null)", plain}, // from 23.02 on
		{"MinJobAge               = 300 sec", "MinJobAge               = 0 sec", with(func(s *Settings) { s.MinJobAge = 0 })},
		// rl_enable came with 23.02 (Slurm RELEASE_NOTES).
		{"SlurmctldParameters     = (null)", "SlurmctldParameters     = cloud_dns,rl_enable", with(func(s *Settings) { s.RateLimit = RateLimit{2, 30} })},
		{"SlurmctldParameters     = (null)", "SlurmctldParameters     = rl_enable,rl_bucket_size=50,rl_refill_rate=10,rl_refill_period=4,rl_table_size=4096", with(func(s *Settings) { s.RateLimit = RateLimit{2.5, 50} })},
		{"SlurmctldParameters     = (null)", "SlurmctldParameters     = rl_refill_rate=10", plain},
		{"MaxArraySize            = 10001", "MaxArraySize            = 0", with(func(s *Settings) { s.MaxArraySize = 0 })},
		{"ResumeProgram           = (null)", "ResumeProgram           = /opt/slurm/resume", with(func(s *Settings) { s.Elastic = true })},
	} {
		if !strings.Contains(whole, c.was) {
			t.Fatalf("the recorded answer lacks %q", c.was)
		}
		got, err := parseSettings(strings.Replace(whole, c.was, c.is, 1))
		if d := cmp.Diff(c.want, got); d != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", c.is, err, d)
		}
	}
	const version = "SLURM_VERSION           = 22.05.8\n" // a site's wrapper may leave it out
	if got, err := parseSettings(strings.Replace(whole, version, "", 1)); got != with(func(s *Settings) { s.Version = "" }) || err != nil || !strings.Contains(whole, version) {
		t.Errorf("without the version: %+v, %v", got, err)
	}
	for _, out := range []string{"", "This cluster has moved.\n", strings.Replace(whole, "300 sec", "300 parsecs", 1), strings.Replace(whole, "= 10001", "= many", 1), strings.Replace(whole, "SlurmctldParameters     = (null)", "SlurmctldParameters=rl_enable,rl_refill_rate=0", 1)} {
		if s, err := parseSettings(out); err == nil {
			t.Errorf("%.40q was read as %+v", out, s)
		}
	}
}

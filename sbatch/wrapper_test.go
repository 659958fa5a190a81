package sbatch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// A wrapper of squeue, sacct or sinfo, a broken connection or a full disk may cut an answer anywhere. A cut between two
// records leaves whole records: then only the exit status tells.
func TestCutAnswerIsNeverReadAsAnother(t *testing.T) {
	t.Parallel()
	const separator = "|MARKED00|"
	turns := ""
	for _, job := range []string{"7|MARKED00|cpu,gpu|MARKED00|400|MARKED00|Priority", "8|MARKED00|cpu|MARKED00|100|MARKED00|Resources"} {
		turns += separator + job + "\n"
	}
	for name, c := range map[string]struct {
		whole string
		parse func(string) (any, error)
	}{
		"squeue": {recorded(t, "squeue.txt"), func(out string) (any, error) { return parseQueue(out, separator) }},
		"sacct": {recorded(t, "sacct.txt"), func(out string) (any, error) {
			own, shared, err := parseAccounting(out, "|")
			return slices.Concat(own, shared), err
		}},
		"sinfo":    {recorded(t, "sinfo.txt"), func(out string) (any, error) { return parsePartitions(out) }},
		"sacctmgr": {recorded(t, "sacctmgr.txt"), func(out string) (any, error) { return parseAssociations(out) }},
		"scontrol show config": {recorded(t, "scontrol-config.txt"), func(out string) (any, error) {
			s, err := parseSettings(out)
			s.Version = "" // which may be lost: it decides nothing
			return s, err
		}},
		"places":  {turns, func(out string) (any, error) { return parseTurns(out, separator, []JobID{7, 8}) }},
		"one job": {separator + strings.Join([]string{"1795169834", "p", "a", "q", "1-00:00:00", "name", "comment\n"}, separator), func(out string) (any, error) { return parseDetails(out, separator) }},
		"costs":   {"7|COMPLETED|100|160|60|billing=4,cpu=4,gres/gpu=2,mem=8G,node=1|3600\n8|FAILED|100|160|60|cpu=4,node=1|\n", func(out string) (any, error) { return parseCharges(out) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want, err := c.parse(c.whole)
			if err != nil {
				t.Fatal(err)
			}
			for end := range len(c.whole) {
				got, err := c.parse(c.whole[:end])
				if err != nil || end == 0 || c.whole[end-1] == '\n' || cmp.Equal(want, got) {
					continue
				}
				t.Fatalf("an answer that ends in %q was read as\n%+v", c.whole[max(0, end-60):end], got)
			}
		})
	}
}

func TestCutAnswerAboutTheSettingsDoesNotHideALimit(t *testing.T) {
	t.Parallel()
	whole := strings.Replace(recorded(t, "scontrol-config.txt"), "SlurmctldParameters     = (null)", "SlurmctldParameters     = cloud_dns,rl_enable", 1)
	for end := range len(whole) {
		if s, err := parseSettings(whole[:end]); err == nil && s.RateLimit.PerSecond == 0 {
			t.Fatalf("an answer that ends in %q is %+v", whole[max(0, end-60):end], s)
		}
	}
}

func TestCutAnswerAboutAnExpectedStartNamesNoOtherNode(t *testing.T) {
	t.Parallel()
	const whole = "sbatch: Job 288 to start at 2026-11-27T01:03:02 using 1 processors on nodes n1 in partition cpu\n"
	for end := range len(whole) {
		if e := parseExpected(whole[:end]); e != nil {
			t.Errorf("%q: %+v", whole[:end], e)
		}
	}
}

// Wrappers print banners, and fail in their own ways. Each answer is read as Slurm's own, or is an error.
func TestWrapperOfSqueueIsReadAsSqueueOrNotAtAll(t *testing.T) {
	t.Parallel()
	const job = `for a; do case $a in --format=*) sep=${a#--format=} sep=${sep%%%*} ;; esac; done
job() { for f in 7 RUNNING n1 1795169834 name None 1795169830 1:00 'codalab bundle=0x1'; do printf %s "$sep$f"; done; echo; }
`
	for name, c := range map[string]struct {
		script string
		ok     bool
	}{
		"itself":                          {`job`, true},
		"banner on standard error":        {`echo 'Maintenance on Monday!' >&2; job`, true},
		"empty lines before":              {`echo; job`, true},
		"a warning of squeue's plugin":    {`echo 'squeue: error: spank: required plugin x.so: Plugin not found' >&2; job`, true},
		"banner before":                   {`echo 'Maintenance on Monday!'; job`, false},
		"whole, and a status of its own":  {`job; exit 3`, false},
		"another time of the same job":    {`job; job | sed 's/RUNNING//'`, false},
		"killed after the first half":     {`job; kill -9 $$`, false},
		"cut by a full disk":              {`job | head -c 40`, false},
		"cut, and something follows":      {`job | head -c 40; echo '[…]'`, false},
		"lines of a Windows machine":      {`job | sed 's/$/\r/'; job | head -c 20`, false},
		"a table for people":              {`echo '  JOBID PARTITION NAME USER ST TIME NODES NODELIST(REASON)'`, false},
		"JSON":                            {`echo '{"jobs": []}'`, false},
		"a page of a portal":              {`echo '<!DOCTYPE html>'`, false},
		"another separator than asked of": {`sep='|'; job`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := Client{Bin: programs(t, map[string]string{"squeue": job + c.script})}
			s, err := client.Observe(t.Context(), time.Now())
			if (err == nil) != c.ok || err == nil && (len(s.Jobs) != 1 || s.Jobs[0].ID != 7 || s.Jobs[0].State != StateRunning || s.Jobs[0].Comment != "codalab bundle=0x1") {
				t.Errorf("%+v, %v", s.Jobs, err)
			}
		})
	}
}

// A wrapper is killed with all that it has started: else its sbatch could still make a job after the bridge has looked
// for one.
func TestSbatchBelowAWrapperEndsWithIt(t *testing.T) {
	t.Parallel()
	bin := programs(t, map[string]string{"sbatch": `(read -r _ <"$0.gate"; echo made >"$0.made") & wait`})
	gate := filepath.Join(bin, "sbatch.gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	client := Client{Bin: bin, SubmitTimeout: 200 * time.Millisecond}
	_, err := client.Submit(t.Context(), Request{Name: "x", Script: "#!/bin/sh\n"})
	if e, ok := errors.AsType[*Error](err); !ok || e.Refused {
		t.Fatalf("%v: want an unclear answer", err)
	}
	testenv.Await(t, "nothing waits at the gate", func() bool {
		f, err := os.OpenFile(gate, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err == nil {
			err = f.Close() // the reader goes on
			if err != nil {
				t.Fatal(err)
			}
			return false
		}
		return errors.Is(err, syscall.ENXIO)
	})
	if _, err := os.Stat(filepath.Join(bin, "sbatch.made")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a job was made after the answer: %v", err)
	}
}

// A logger of the wrapper's, which outlives it, keeps no submission waiting.
func TestWrapperThatLeavesAProcessBehindHasAnswered(t *testing.T) {
	t.Parallel()
	client := Client{Bin: programs(t, map[string]string{"sbatch": `echo 42; sleep 600 &`})}
	if id, err := client.Submit(t.Context(), Request{Name: "x", Script: "#!/bin/sh\n"}); id != 42 || err != nil {
		t.Errorf("%d, %v", id, err)
	}
}

// Slurm's times are seconds since 1970 by all commands, so that the hours that clocks repeat or skip are no others.
func TestTimesAreRightInTheHoursThatClocksRepeatAndSkip(t *testing.T) {
	t.Parallel()
	// date(1) does what Slurm's commands do: it prints local time unless the format is %s.
	const squeue = `for a; do case $a in --format=*) sep=${a#--format=} sep=${sep%%%*} ;; esac; done
t() { date -d "@$1" "+${SLURM_TIME_FORMAT:-%Y-%m-%dT%H:%M:%S}"; }
for f in 7 RUNNING n1 "$(t START)" name None "$(t SUBMIT)" 1:00 ''; do printf %s "$sep$f"; done; echo`
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe"} {
		local, err := time.LoadLocation(zone)
		if err != nil {
			t.Skipf("no time zones on this machine: %v", err)
		}
		for year := 2026; year <= 2027; year++ {
			for at := time.Date(year, 1, 1, 0, 30, 0, 0, time.UTC); at.Year() == year; at = at.Add(time.Hour) {
				if _, before := at.Add(-time.Hour).In(local).Zone(); before == offset(at, local) {
					continue // the clock does not change within this hour
				}
				checkTimes(t, zone, squeue, at.Add(-90*time.Minute), at)
				checkTimes(t, zone, squeue, at.Add(-30*time.Minute), at.Add(30*time.Minute))
			}
		}
	}
}

func offset(at time.Time, zone *time.Location) int {
	_, seconds := at.In(zone).Zone()
	return seconds
}

// checkTimes lets a job be submitted and start at these times, in a login shell of a time zone.
func checkTimes(t *testing.T, zone, squeue string, submit, start time.Time) {
	t.Helper()
	script := "TZ=${TZ:-" + zone + "}; export TZ\n" + strings.NewReplacer("START", fmt.Sprint(start.Unix()), "SUBMIT", fmt.Sprint(submit.Unix())).Replace(squeue)
	client := Client{Bin: programs(t, map[string]string{"squeue": script})}
	s, err := client.Observe(t.Context(), time.Now())
	if err != nil || len(s.Jobs) != 1 || !s.Jobs[0].Start.Equal(start) || !s.Jobs[0].Submitted.Equal(submit) {
		t.Errorf("%s: submitted %s, started %s: %+v, %v", zone, submit, start, s.Jobs, err)
	}
}

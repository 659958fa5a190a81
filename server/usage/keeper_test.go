package usage

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/hub"
)

// texts is a Store in memory; a nil one fails.
type texts map[string]string

func (s texts) Usage(context.Context, []string) (map[string]string, error) {
	if s == nil {
		return nil, errors.New("the store fails")
	}
	return s, nil
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// note tells a keeper that a run has run for some seconds.
func note(t *testing.T, k *Keeper, uuid string, ran float64) {
	t.Helper()
	report := told(ran, ran, nil)
	report.UUID = uuid
	if err := k.Note(t.Context(), []hub.OwnReport{{RunReport: report}}, start().Add(time.Duration(ran)*time.Second)); err != nil {
		t.Fatal(err)
	}
}

func TestSeriesIsWrittenWhenItsTimeHasDoubledAndAtTheEnd(t *testing.T) {
	t.Parallel()
	in := texts{}
	k := NewKeeper(in, quiet())
	var written []int
	const hour = 3600
	for ran := 5; ran < hour; ran += 5 {
		note(t, k, "0x1", float64(ran))
		now := start().Add(time.Duration(ran) * time.Second)
		if text := k.ToSave("0x1", now, false); text != "" {
			written = append(written, ran)
			k.Saved("0x1", now, false)
		}
	}
	if want := []int{65, 130, 260, 520, 1040, 1580, 2120, 2660, 3200}; !slices.Equal(written, want) {
		t.Errorf("it was written after %d seconds, want %d", written, want)
	}
	end := start().Add(hour * time.Second)
	in["0x1"] = k.ToSave("0x1", end, true)
	k.Saved("0x1", end, true)
	u, err := k.Of(t.Context(), "0x1", codalab.UsageLimits{CPUs: 2})
	if err != nil || u.Whole.Seconds != hour-5 || u.Limits.CPUs != 2 || len(k.runs) != 0 {
		t.Errorf("%+v, %v, %d in memory", u.Whole, err, len(k.runs))
	}
	if k.ToSave("0x2", end, true) != "" {
		t.Error("a run of which nobody has reported is written")
	}
}

// A server that starts again goes on with what the one before has written, and the next report covers the time between.
func TestSeriesOutlivesTheServer(t *testing.T) {
	t.Parallel()
	k := NewKeeper(texts{}, quiet())
	note(t, k, "0x1", 60)
	next := NewKeeper(texts{"0x1": k.ToSave("0x1", start(), true), "0x2": "{"}, quiet())
	note(t, next, "0x1", 100)
	note(t, next, "0x2", 5)
	for uuid, want := range map[string]float64{"0x1": 100, "0x2": 5} {
		if u, err := next.Of(t.Context(), uuid, codalab.UsageLimits{}); err != nil || u.Whole.Seconds != want {
			t.Errorf("%s: %v s, %v", uuid, u.Whole.Seconds, err)
		}
	}
}

// A text that this server cannot read, such as that of an older one, fails nobody's question.
func TestUnreadableSeriesIsAnEmptyOne(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	k := NewKeeper(texts{"0x1": `{"start":1700000000,"mean":[[500,500],null,null,null]}`}, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	u, err := k.Of(t.Context(), "0x1", codalab.UsageLimits{CPUs: 2})
	if err != nil || len(u.Points) != 0 || u.Limits.CPUs != 2 {
		t.Errorf("%+v, %v", u, err)
	}
	if got := log.String(); strings.Count(got, "level=DEBUG") != 1 || strings.Count(got, "\n") != 1 || !strings.Contains(got, "bundle=0x1") {
		t.Errorf("the log has %q", got)
	}
}

func TestRunThatNobodyReportsIsForgotten(t *testing.T) {
	t.Parallel()
	k := NewKeeper(texts{}, quiet())
	note(t, k, "0x1", 5)
	note(t, k, "0x2", 6)
	note(t, k, "0x2", 6+silence.Seconds())
	if k.runs["0x1"] != nil || k.runs["0x2"] == nil {
		t.Errorf("%v", k.runs)
	}
}

func TestRunsInMemoryAreBounded(t *testing.T) {
	t.Parallel()
	k := NewKeeper(texts{}, quiet())
	for i := range mostRuns - 1 {
		k.runs[strconv.Itoa(i)] = &kept{noted: start()}
	}
	note(t, k, "0x1", 5)
	note(t, k, "0x2", 5)
	if u, err := k.Of(t.Context(), "0x2", codalab.UsageLimits{}); err != nil || len(k.runs) != mostRuns || k.runs["0x1"] == nil || u.Whole.Seconds != 0 {
		t.Errorf("%d in memory; %+v, %v", len(k.runs), u, err)
	}
}

// The sections are nearly all of the memory that a run takes.
func TestSeriesInMemoryTakesTenKilobytes(t *testing.T) {
	t.Parallel()
	k := NewKeeper(texts{}, quiet())
	for ran := range 20 * mostSections { // it doubles, and grows again
		note(t, k, "0x1", 5*float64(ran+1))
		one := k.runs["0x1"]
		if n := unsafe.Sizeof(*one) + uintptr(cap(one.run.series.sections))*unsafe.Sizeof(section{}); n > 10_000 {
			t.Fatalf("%d bytes after %d reports", n, ran+1)
		}
	}
}

func TestReportFailsWithItsStore(t *testing.T) {
	t.Parallel()
	k := NewKeeper(texts(nil), quiet())
	report := hub.OwnReport{RunReport: told(5, 5, nil)}
	if err := k.Note(t.Context(), []hub.OwnReport{report}, start()); err == nil {
		t.Error("the next check-in would begin a second series")
	}
	report.ContainerTimeTotal = 0
	if err := k.Note(t.Context(), []hub.OwnReport{report}, start()); err != nil {
		t.Errorf("a run that has not begun needs no store: %v", err)
	}
}

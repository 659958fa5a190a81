package hub

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

func TestDoorbellRingsOnlyWithoutAHeldCheckIn(t *testing.T) {
	t.Parallel()
	h := New(time.Minute, start)
	bell, err := h.Bells.Add("w", "1.2.3.4")
	other, otherErr := h.Bells.Add("x", "1.2.3.4")
	if err := errors.Join(err, otherErr); err != nil {
		t.Fatal(err)
	}
	if track(h, run("0x1", codalab.StateStarting)); rung(bell) != 0 {
		t.Error("it rings for an id that has not checked in")
	}
	c := checkIn(t, h, codalab.CheckIn{}, start)
	if c.MayHold() {
		t.Error("the check-in of a worker with a doorbell is held")
	}
	if track(h, run("0x2", codalab.StateStarting)); rung(bell) != 0 || !woken(t, c) {
		t.Error("it rings while a check-in waits")
	}
	if c.End(); rung(bell) != 1 {
		t.Error("it does not ring for messages that a check-in has not got")
	}
	<-bell.rung
	c = checkIn(t, h, codalab.CheckIn{}, start)
	c.Due(start)
	if c.End(); rung(bell) != 0 {
		t.Error("it rings for messages that a check-in has got")
	}
	if track(h, run("0x3", codalab.StateStarting)); rung(bell) != 1 || rung(other) != 0 {
		t.Error("it does not ring between two check-ins, or for another worker")
	}
	bell.Close()
	if c = checkIn(t, h, codalab.CheckIn{}, start); !c.MayHold() {
		t.Error("a closed doorbell counts")
	}
	if c = checkIn(t, h, codalab.CheckIn{Instance: "a"}, start); !c.MayHold() {
		t.Error("the check-in of a bridge is not held")
	}
}

func TestDoorbellsAreBounded(t *testing.T) {
	t.Parallel()
	bells := New(time.Minute, start).Bells
	var open []*Bell
	for i := range maxBellsOfAddress {
		b, err := bells.Add(strconv.Itoa(i/maxBellsOfID), "1.2.3.4")
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, b)
	}
	if _, err := bells.Add("new", "1.2.3.4"); !errors.Is(err, ErrTooMany) {
		t.Errorf("of one address: %v", err)
	}
	if _, err := bells.Add("0", "5.6.7.8"); !errors.Is(err, ErrTooMany) {
		t.Errorf("of one id: %v", err)
	}
	for _, b := range open {
		b.Close()
	}
	bells.Wait()
	if len(bells.ofID)+len(bells.ofAddress)+bells.all != 0 {
		t.Errorf("closed doorbells are remembered: %+v %+v", bells.ofID, bells.ofAddress)
	}
	bells.stop()
	if _, err := bells.Add("0", "5.6.7.8"); !errors.Is(err, ErrStopped) {
		t.Errorf("after the end: %v", err)
	}
}

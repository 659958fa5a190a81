package ledger_test

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

// fullRow returns a row in which every field that a ledger stores has a value. It is new: its version is 0.
func fullRow(bundle string) plan.Row {
	var r plan.Row
	fill(reflect.ValueOf(&r).Elem(), 3)
	r.Bundle = bundle
	r.Phase = plan.Claiming
	r.Attempt.Number = 1
	r.Reason = "the server offered the bundle"
	return r
}

// fill sets everything that is saved, down to some depth.
func fill(v reflect.Value, depth int) {
	if v.Type() == reflect.TypeFor[time.Time]() {
		v.Set(reflect.ValueOf(time.Unix(1_800_000_000, 123_456_000).UTC()))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("a piece of text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Float64:
		v.SetFloat(1.5)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth)
	case reflect.Slice:
		if depth > 0 && v.Type().Elem().Kind() != reflect.Uint8 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			fill(v.Index(0), depth-1)
		}
	case reflect.Map:
		fillMap(v)
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && !strings.HasPrefix(f.Tag.Get("json"), "-") {
				fill(v.Field(i), depth)
			}
		}
	}
}

func fillMap(v reflect.Value) {
	v.Set(reflect.MakeMap(v.Type()))
	key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
	if key.Kind() != reflect.String {
		return
	}
	for i := range 3 {
		key.SetString(fmt.Sprintf("key%d", i))
		if value.Kind() == reflect.Interface {
			value.Set(reflect.ValueOf("a piece of text"))
		} else {
			fill(value, 0)
		}
		v.SetMapIndex(key, value)
	}
}

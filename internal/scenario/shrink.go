package scenario

import (
	"reflect"
	"time"
)

// Shrink makes a scenario smaller as long as fails says that it still fails, and returns
// the smallest one that did. It calls fails at most tries times.
func Shrink(s Scenario, tries int, fails func(Scenario) bool) Scenario {
	for tries > 0 {
		smaller := false
		for candidate := range simpler(s) {
			if tries == 0 {
				break
			}
			tries--
			if fails(candidate) {
				s, smaller = candidate, true
				break
			}
		}
		if !smaller {
			break
		}
	}
	return s
}

// simpler yields scenarios that are simpler than s in one place, those with the greatest
// differences first.
func simpler(s Scenario) func(yield func(Scenario) bool) {
	return func(yield func(Scenario) bool) {
		simplify(reflect.ValueOf(s), func(v reflect.Value) bool {
			return yield(v.Interface().(Scenario))
		})
	}
}

// simplify yields values that are simpler than v. It reports false if it was
// stopped.
func simplify(v reflect.Value, yield func(reflect.Value) bool) bool {
	if v.IsZero() || v.Kind() == reflect.Func {
		return true
	}
	zero := reflect.Zero(v.Type())
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if !simplify(v.Field(i), func(field reflect.Value) bool {
				whole := reflect.New(v.Type()).Elem()
				whole.Set(v)
				whole.Field(i).Set(field)
				return yield(whole)
			}) {
				return false
			}
		}
		return true
	case reflect.Slice:
		for size := v.Len(); size > 0; size /= 2 {
			for from := 0; from+size <= v.Len(); from += size {
				rest := zero // not an empty list, which is not the zero value
				rest = reflect.AppendSlice(rest, v.Slice(0, from))
				rest = reflect.AppendSlice(rest, v.Slice(from+size, v.Len()))
				if !yield(rest) {
					return false
				}
			}
		}
		for i := range v.Len() {
			if !simplify(v.Index(i), func(element reflect.Value) bool {
				whole := reflect.AppendSlice(reflect.MakeSlice(v.Type(), 0, v.Len()), v)
				whole.Index(i).Set(element)
				return yield(whole)
			}) {
				return false
			}
		}
		return true
	}
	if !yield(zero) {
		return false
	}
	if v.Type() == reflect.TypeFor[time.Duration]() {
		d := time.Duration(v.Int())
		for _, unit := range []time.Duration{time.Hour, time.Minute, time.Second, time.Millisecond} {
			if round := d.Truncate(unit); round != 0 && round != d && !yield(reflect.ValueOf(round)) {
				return false
			}
		}
	}
	return true
}

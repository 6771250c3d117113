package main

import (
	"fmt"
	"math"
	"slices"
)

// A figure sums up many rounds for printing.
type figure struct {
	median float64
	spread float64 // half the distance between the quartiles
}

// summarize returns the figure of rounds, of which there must be at least one.
func summarize(rounds []float64) figure {
	sorted := slices.Sorted(slices.Values(rounds))
	return figure{
		median: quantile(sorted, 0.5),
		spread: (quantile(sorted, 0.75) - quantile(sorted, 0.25)) / 2,
	}
}

// quantile returns the value that the share q of the values is below, interpolated
// between two values if necessary.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 == len(sorted) {
		return sorted[i]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

// ratio prints a figure that is a ratio, with its spread in per cent.
func (f figure) ratio() string {
	if f.median == 0 {
		return "0"
	}
	return fmt.Sprintf("%.3g ±%.0f%%", f.median, 100*f.spread/f.median)
}

// amount prints a figure that is not a ratio, to two decimals.
func (f figure) amount() string {
	return fmt.Sprintf("%v ±%v", hundredths(f.median), hundredths(f.spread))
}

func hundredths(x float64) float64 { return math.Round(x*100)/100 + 0 } // and no −0

// ratios returns rounds, each divided by the same round of base.
func ratios(rounds, base []float64) []float64 {
	out := make([]float64, len(rounds))
	for i := range rounds {
		out[i] = rounds[i] / base[i]
	}
	return out
}

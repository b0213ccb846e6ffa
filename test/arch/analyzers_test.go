package arch

import (
	"slices"
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"
)

// Each analyzer must find what testdata/src marks with a want comment, and
// nothing else there.

func TestPureFindsImpurity(t *testing.T) {
	analysistest.Run(t, analysistest.TestData(), Pure(), "pure")
}

func TestStateFindsState(t *testing.T) {
	analysistest.Run(t, analysistest.TestData(), State(), "state")
}

func TestExitsFindsExits(t *testing.T) {
	analysistest.Run(t, analysistest.TestData(), Exits(), "exits")
}

func TestMetricsFindsStrayMetrics(t *testing.T) {
	analysistest.Run(t, analysistest.TestData(), Metrics(), "metricsbad", "metricsnames")
	results := analysistest.Run(t, analysistest.TestData(), Metrics(), "metricsgood")
	want := []string{"fairlead_good_lost_total", "fairlead_good_sent_total", "fairlead_good_up"}
	if got := results[0].Result.([]string); !slices.Equal(got, want) {
		t.Errorf("names %q, want %q", got, want)
	}
}

func TestCheckMetricDocs(t *testing.T) {
	names := map[string][]string{
		"core/a": {"fairlead_a_total", "fairlead_both"},
		"core/b": {"fairlead_both"},
		"core/c": nil,
	}
	got := CheckMetricDocs(names, "`fairlead_both{kind}` and `fairlead_gone_total`")
	want := []string{
		"docs/metrics.md explains fairlead_gone_total, which no package declares",
		"metric fairlead_a_total of core/a is not in docs/metrics.md",
		"metric fairlead_both is declared in core/a and in core/b",
	}
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	if got := CheckMetricDocs(map[string][]string{"core/a": {"fairlead_up"}}, "| `fairlead_up` | 1 |"); got != nil {
		t.Errorf("found %q where all is well", got)
	}
}

package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairlead/fairlead/dataplane/conformance/l4"
)

// trafficFlags are the flags of `plugin conform` that are for --traffic only.
type trafficFlags struct {
	on      bool
	without []string
	scale   float64
	seed    uint64
}

func (t *trafficFlags) register(flags *pflag.FlagSet) {
	flags.BoolVar(&t.on, "traffic", false, "ask where connections and datagrams go, as root")
	flags.StringArrayVar(&t.without, "without", nil, "with --traffic, what it is not made for, `FEATURE=REASON`; repeatable")
	flags.Float64Var(&t.scale, "scale", 0.1, "with --traffic, a factor of the counts")
	flags.Uint64Var(&t.seed, "seed", 0, "with --traffic, of the random steps; 0: another one each time")
}

func (t *trafficFlags) changed(cmd *cobra.Command) bool {
	flags := cmd.Flags()
	return flags.Changed("without") || flags.Changed("scale") || flags.Changed("seed")
}

func (t *trafficFlags) profile(cmd *cobra.Command) (l4.Profile, error) {
	p := l4.Profile{Without: make(map[l4.Feature]string)}
	for _, word := range t.without {
		feature, reason, found := strings.Cut(word, "=")
		if !found {
			return p, usagef(cmd, "--without %q: want FEATURE=REASON", word)
		}
		p.Without[l4.Feature(feature)] = reason
	}
	return p, nil
}

func (a *app) conformTraffic(cmd *cobra.Command, flags trafficFlags, target l4.Target, o l4.Options) error {
	profile, err := flags.profile(cmd)
	if err != nil {
		return err
	}
	o.Scale, o.Seed = flags.scale, flags.seed
	if err := l4.Validate(target, profile, o); err != nil {
		return usagef(cmd, "%w", err)
	}
	ctx, stop := a.signalled(cmd.Context())
	defer stop()
	return a.printReport(l4.Run(ctx, target, profile, o))
}

func (a *app) printTrafficChecks() error {
	var out []checkJSON
	for _, c := range l4.Checks() {
		out = append(out, checkJSON{ID: c.ID, Demand: c.Demand, Remedy: c.Remedy, Exec: true})
	}
	return a.printDemands(out)
}

package conformance

import (
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/grpc/codes"

	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

func configChecks() []Check {
	return []Check{
		{
			ID: "config.idempotent", Demand: "Configure is idempotent: the same configuration again changes nothing.",
			Remedy: "compare with the configuration in force before acting", run: configIdempotent,
		},
		{
			ID: "config.rejects-bad", Demand: "A configuration that is wrong is answered with INVALID_ARGUMENT.",
			Remedy: "parse all of the configuration before taking any of it; say which key is wrong", run: configRejectsBad,
		},
		{
			ID: "config.keeps-old", Demand: "A rejected configuration leaves the old one in force.",
			Remedy: "swap the configuration only after all of it was checked", run: configKeepsOld,
		},
		{
			ID: "config.instance-id", Demand: "Configure without an instance id is answered with INVALID_ARGUMENT.",
			Remedy: "refuse it: nothing could be tagged, and Cleanup would find nothing", run: configNeedsInstance,
		},
		{
			ID: "config.unknown-key", Demand: "A key that the provider does not know is not ignored in silence.",
			Remedy: `set "additionalProperties": false in the schema, so that the host refuses it, or refuse it yourself`, run: configUnknownKey,
		},
	}
}

func configIdempotent(ctx context.Context, k *kit) error {
	if err := k.open(ctx, several(2)); err != nil {
		return err
	}
	for range 3 {
		if err := k.configure(ctx); err != nil {
			return err
		}
	}
	if err := k.stays(ctx, "the same configuration again"); err != nil {
		return err
	}
	r, err := k.reconcile(ctx, k.unchanged())
	if err != nil {
		return fmt.Errorf("an unchanged tick after it: %w", err)
	}
	if r.GetOperations() != 0 {
		return fmt.Errorf("an unchanged tick after it made %d operations", r.GetOperations())
	}
	return k.seesIfCan(ctx, "it", expect(map[int]int{1: 2, 2: 2}))
}

func (k *kit) bad(config string) *pb.ConfigureRequest {
	c := k.config()
	c.Config, c.InstanceId = []byte(config), k.instance()+"-other"
	return c
}

func configRejectsBad(ctx context.Context, k *kit) error {
	if err := k.configure(ctx); err != nil {
		return err
	}
	for _, text := range []string{"{", "[1]", `"a"`, "\xff"} {
		_, err := k.client().Configure(ctx, k.bad(text))
		if err := refused(fmt.Sprintf("configuration %q", text), err, codes.InvalidArgument); err != nil {
			return err
		}
	}
	k.note("four of four were refused")
	return nil
}

func configNeedsInstance(ctx context.Context, k *kit) error {
	if err := k.configure(ctx); err != nil {
		return err
	}
	c := k.config()
	c.InstanceId = ""
	_, err := k.client().Configure(ctx, c)
	return refused("Configure without an instance id", err, codes.InvalidArgument)
}

func configKeepsOld(ctx context.Context, k *kit) error {
	if err := k.open(ctx, several(2)); err != nil {
		return err
	}
	before, err := k.client().Health(ctx, &pb.HealthRequest{})
	if err != nil {
		return failf("Health: %w", err)
	}
	if _, err := k.client().Configure(ctx, k.bad("{")); err == nil {
		return fmt.Errorf("configuration %q was accepted", "{")
	}
	st, err := k.state(ctx)
	if err != nil {
		return err
	}
	if st.GetInstanceId() != k.instance() {
		return fmt.Errorf("after a rejected configuration the instance id is %q, want %q as before", st.GetInstanceId(), k.instance())
	}
	if err := k.stays(ctx, "a rejected configuration"); err != nil {
		return err
	}
	after, err := k.client().Health(ctx, &pb.HealthRequest{})
	if err != nil {
		return failf("Health: %w", err)
	}
	if before.GetState() != after.GetState() {
		return fmt.Errorf("after a rejected configuration Health is %v %q, before it was %v", after.GetState(), after.GetReasons(), before.GetState())
	}
	if _, err := k.apply(ctx, k.begin(k.gen), whole(3, 1)); err != nil {
		return fmt.Errorf("after a rejected configuration: %w", err)
	}
	return k.seesIfCan(ctx, "it", expect(map[int]int{1: 2, 2: 2, 3: 1}))
}

func configUnknownKey(ctx context.Context, k *kit) error {
	if err := k.configure(ctx); err != nil {
		return err
	}
	if schema := k.info.GetConfigSchema(); len(schema) > 0 {
		var top struct {
			AdditionalProperties  any `json:"additionalProperties"`
			UnevaluatedProperties any `json:"unevaluatedProperties"`
		}
		if err := json.Unmarshal(schema, &top); err != nil {
			return fmt.Errorf("the schema: %w", err)
		}
		if top.AdditionalProperties == false || top.UnevaluatedProperties == false {
			k.note("the schema is closed: the host refuses it")
			return nil
		}
	}
	const text = `{"no-such-key-of-conformance": 1}`
	r, err := k.client().Configure(ctx, k.bad(text))
	if err == nil && len(r.GetDiagnostics()) > 0 {
		k.note("it is remarked on: %s", r.GetDiagnostics()[0].GetMessage())
		return k.configure(ctx)
	}
	return refused("configuration "+text, err, codes.InvalidArgument)
}

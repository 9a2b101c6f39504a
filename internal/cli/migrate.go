package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/wire"
	"github.com/seed-ed332417/jq/postgres"
	"github.com/seed-ed332417/jq/sqlite"
)

func (a *app) migrate() *cobra.Command {
	return a.group("migrate", "create or migrate the schema of a store, or show its version", a.migrateUp(), a.migrateStatus())
}

func (a *app) migrateUp() *cobra.Command {
	var wait time.Duration
	var force bool
	cmd := &cobra.Command{
		Use:   "up",
		Short: "create a store, or migrate it to the schema of this program",
		Long: "Create a store, or migrate it to the schema of this program. Commands that add or run jobs do this too, such as serve, work\n" +
			"and enqueue. All others never create or migrate a store. If only one step of your deployment may change the schema, run\n" +
			"this command there, and set JQ_NO_MIGRATE=true for all others. Several processes may migrate one store at once. If the\n" +
			"command is killed, run it again.\n\n" +
			"Most migrations only add to the schema, and programs of earlier versions continue. Before any other migration, the\n" +
			"command waits until workers and servers of earlier versions have stopped and their leases have ended, and names them. It\n" +
			"does not stop them. It cannot see programs that only enqueue or read: stop these too. Other commands do not wait: they\n" +
			"fail, and have changed nothing.",
		Args: takesNone(),
	}
	cmd.Flags().DurationVar(&wait, "wait", 5*time.Minute, "how long to wait for programs of earlier versions; with 0, the command fails while they run")
	cmd.Flags().BoolVar(&force, "force", false, "do not wait for them; their calls fail from then on, and their jobs run again")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		p, err := a.place()
		if err != nil {
			return err
		}
		if p.kind == addedKind {
			return a.create(cmd.Context(), p)
		}
		before, err := schemaAt(cmd.Context(), p)
		if err != nil {
			return err
		}
		a.bar, a.waits, a.forces = a.progress(), wait, force
		return a.using(cmd.Context(), toFill, func(jq.Store) error {
			switch {
			case before.Version == before.Newest:
				_, err = fmt.Fprintf(a.out, "%s has schema %d, the newest\n", printable(p.shown), before.Newest)
			case before.Version > before.Newest:
				_, err = fmt.Fprintf(a.out, "%s has schema %d, which a newer program has made; this program works with it\n", printable(p.shown), before.Version)
			default:
				_, err = fmt.Fprintf(a.out, "migrated %s from schema %d to %d\n", printable(p.shown), before.Version, before.Newest)
			}
			return err
		})
	}
	return cmd
}

// create makes a store of a kind that has nothing to migrate.
func (a *app) create(ctx context.Context, p place) error {
	return a.using(ctx, toFill, func(jq.Store) error {
		_, err := fmt.Fprintf(a.out, "%s is there; a store on %s has no schema to migrate\n", printable(p.shown), p.added.Name)
		return err
	})
}

// migrating shows the number of the current migration.
func (p *progress) migrating(step, of int) {
	p.show(int64(step-1), int64(of), "migration %d of %d", step, of)
}

func (a *app) migrateStatus() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "status", Short: "show the schema version, and fail if this program cannot work with it", Args: takesNone(),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		p, err := a.place()
		if err != nil {
			return err
		}
		found, err := schemaAt(cmd.Context(), p)
		if err != nil {
			return err
		}
		if asJSON {
			err = wire.Encode(a.out, map[string]int{"schema": found.Version, "newest": found.Newest, "least": found.Least})
		} else {
			_, err = fmt.Fprintf(a.out, "%s has schema %d of %d\n", printable(p.shown), found.Version, found.Newest)
		}
		return errors.Join(err, schemaMismatch(found))
	}
	return cmd
}

// schemaMismatch returns an error that says what to do if this program cannot work with the schema.
func schemaMismatch(s contract.Schema) error {
	switch {
	case s.Version < s.Newest:
		return errors.New("the schema of the store is older than this program: run migrate up")
	case s.Least > s.Newest:
		return errors.New("the schema of the store is newer than this program: update the program")
	}
	return nil
}

// schemaAt returns the schema version of the store.
func schemaAt(ctx context.Context, p place) (contract.Schema, error) {
	switch p.kind {
	case "sqlite":
		return sqlite.SchemaVersion(ctx, p.path)
	case "postgres":
		return postgres.SchemaVersion(ctx, p.dsn, &postgres.Options{Schema: p.schema, Pooled: p.pooled})
	case addedKind:
		return contract.Schema{}, fmt.Errorf("%s has no schema: each program checks the layout of its keys when it opens the store", p.shown)
	default:
		return contract.Schema{}, fmt.Errorf("%s has no schema: name an SQLite or Postgres store with --store", p.shown)
	}
}

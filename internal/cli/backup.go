package cli

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/sqlite"
)

func (a *app) backup() *cobra.Command {
	return &cobra.Command{
		Use:   "backup FILE",
		Short: "copy an SQLite store to a new file while it is in use",
		Long: "Copy an SQLite store to a new file, as it is at one moment. Servers and workers can keep running. The command reads the\n" +
			"store's file and needs no server. The copy is one complete file; to use it, run restore. If the backup is interrupted, it\n" +
			"does not create FILE.",
		Args:    takes(1, 1, "a new file for the backup"),
		Example: "  SELF backup jq-monday.db\n  SELF restore jq-monday.db",
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := a.inFile("back up", func(k *Kind) string { return k.Backup }, "dump its schema (pg_dump --schema=jq) or copy the cluster (pg_basebackup)")
			if err != nil {
				return err
			}
			return a.using(cmd.Context(), toRead, func(s jq.Store) error {
				file, ok := s.(*sqlite.Store)
				if !ok {
					return errors.New("this store is not in a file")
				}
				if err := file.Backup(cmd.Context(), args[0]); err != nil {
					return err
				}
				size := int64(0)
				if info, err := os.Stat(args[0]); err == nil {
					size = info.Size()
				}
				_, err := fmt.Fprintf(a.out, "backed up %s to %s (%d KiB)\n", printable(p.shown), printable(args[0]), size>>10)
				return err
			})
		},
	}
}

func (a *app) restore() *cobra.Command {
	return &cobra.Command{
		Use:   "restore FILE",
		Short: "replace an SQLite store with a backup",
		Long: "Replace an SQLite store with a backup. The store itself may be missing. Stop every process that uses the store first: while\n" +
			"a process has it open, the command fails and changes nothing. The restored store is fenced, so it never issues a lease\n" +
			"token or an id again that was issued after the backup. Start workers afterwards. The command keeps the previous file and\n" +
			"prints its name.\n\n" +
			"If a restore is interrupted, the store is either unchanged or fully restored. Repeat the command.",
		Args: takes(1, 1, "the file that backup created"),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := a.inFile("restore", func(k *Kind) string { return k.Restore }, "restore the dump or the copy with its own tools (pg_restore, psql), then run "+a.self+" fence before workers start")
			if err != nil {
				return err
			}
			done, err := sqlite.Restore(cmd.Context(), p.path, args[0])
			if err != nil {
				return err
			}
			fmt.Fprintf(a.out, "restored %s from %s: %s, epoch %d; workers can start\n",
				printable(p.shown), printable(args[0]), plural(done.Jobs), done.Epoch)
			if done.Kept != "" {
				fmt.Fprintf(a.out, "kept the previous file as %s: delete it when you no longer need it\n", printable(done.Kept))
			}
			return nil
		},
	}
}

// inFile returns the place of an SQLite store. For other stores it returns an error that says what to do instead.
func (a *app) inFile(verb string, added func(*Kind) string, postgres string) (place, error) {
	p, err := a.place()
	if err != nil {
		return p, err
	}
	switch p.kind {
	case "sqlite":
		return p, nil
	case "postgres":
		return p, fmt.Errorf("this command cannot %s a Postgres store: %s", verb, postgres)
	case addedKind:
		return p, fmt.Errorf("this command cannot %s a store on %s: %s", verb, p.added.Name, added(p.added))
	case "server":
		return p, fmt.Errorf("this command cannot %s a store through its server: run it where the store is, and name the store with --store", verb)
	default:
		return p, fmt.Errorf("this command cannot %s %s it keeps jobs only until its process ends", verb, p.shown)
	}
}

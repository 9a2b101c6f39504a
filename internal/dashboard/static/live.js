// Keeps a page up to date. Events of the server say that something has changed; the page then reads again what it shows. However
// many events come, it reads at most about once a second, and less often if the server is slow. After the last event it reads once
// more, because the server shares some answers between readers for half a second. Changes by programs that use the store directly are
// no events of this server, so the page also reads every five seconds.

const least = 700; // milliseconds between two readings
const most = 10000;
const quiet = 5000; // between readings without an event

export class Live {
  constructor(refresh, changed) {
    this.refresh = refresh; // reads and draws; returns a promise
    this.changed = changed; // draws the state of the connection
    this.paused = false;
    this.wanted = false; // connect was called
    this.missed = 0; // events since the pause
    this.connected = false;
    this.running = false;
    this.dirty = false; // something may have changed since the latest reading
    this.told = false; // by an event
    this.earliest = 0;
    document.addEventListener("visibilitychange", () => this.attend());
    setInterval(() => this.note(false), quiet);
  }

  // attend closes the stream while nobody sees the page: a browser opens six connections to a server, so a seventh page would wait for
  // ever. That holds too for pages that it keeps for the way back.
  attend() {
    if (document.visibilityState === "hidden") return this.drop();
    if (this.wanted && !this.source) this.connect();
    this.note(this.paused); // a page that was hidden while paused may be out of date
  }

  // connect opens the stream of events.
  connect() {
    this.drop();
    this.wanted = true;
    if (document.visibilityState === "hidden") return;
    this.source = new EventSource("v1/events");
    this.source.addEventListener("open", () => this.setConnected(true));
    for (const name of ["job", "reset"]) this.source.addEventListener(name, () => this.note(true));
    this.source.addEventListener("error", () => {
      this.setConnected(false);
      if (this.source?.readyState === EventSource.CLOSED) {
        this.drop();
        this.again = setTimeout(() => this.connect(), 5000);
      }
    });
  }

  // close ends the stream for good.
  close() {
    this.wanted = false;
    this.drop();
  }

  drop() {
    clearTimeout(this.again);
    this.source?.close();
    this.source = null;
    this.setConnected(false);
  }

  setConnected(connected) {
    if (this.connected === connected) return;
    this.connected = connected;
    this.changed();
  }

  setPaused(paused) {
    this.paused = paused;
    this.missed = 0;
    this.changed();
    if (!paused) this.note(true);
  }

  // note records that the page is out of date.
  note(event) {
    if (this.paused) {
      if (event) this.missed++;
      if (event && this.missed === 1) this.changed();
      return;
    }
    this.dirty = true;
    this.told ||= event;
    this.arrange();
  }

  // arrange plans the next reading.
  arrange() {
    if (!this.dirty || this.running || this.planned || this.paused || document.visibilityState === "hidden") return;
    this.planned = setTimeout(
      async () => {
        this.planned = null;
        this.dirty = this.told; // then once more
        this.told = false;
        this.running = true;
        const began = performance.now();
        try {
          await this.refresh();
        } finally {
          this.running = false;
          const took = performance.now() - began;
          this.earliest = performance.now() + Math.min(most, Math.max(least - took, 3 * took));
          this.arrange();
        }
      },
      Math.max(50, this.earliest - performance.now()),
    );
  }
}

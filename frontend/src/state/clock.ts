/**
 * The server's clock, seen from here. A browser's clock may be minutes off, or be set while the page is open; ages on the page are
 * differences between times of the server, so they are measured by its clock, carried on by a counter that nobody sets.
 */
export class ServerClock {
  private serverAt: number | null = null;
  private counterAt = 0;

  /**
   * @param counter Milliseconds that only ever grow.
   * @param wall The browser's own clock, which has to do until the server has spoken.
   */
  constructor(
    private readonly counter: () => number = () => performance.now(),
    private readonly wall: () => number = () => Date.now(),
  ) {}

  /** The server has said what time it is. */
  set(now: number): void {
    this.serverAt = now;
    this.counterAt = this.counter();
  }

  /** Milliseconds since 1970 by the server's clock. */
  now(): number {
    return this.serverAt === null ? this.wall() : this.serverAt + (this.counter() - this.counterAt);
  }

  /** How far the browser's clock is ahead of the server's. */
  offset(): number {
    return this.wall() - this.now();
  }
}

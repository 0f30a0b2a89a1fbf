/** A card: a title, a note, and what it shows. */
import type { ComponentChildren } from "preact";

export function Card(props: {
  title: string; note?: string; job?: string; kind?: string; onClose?: () => void; children: ComponentChildren;
}) {
  return (
    <section class="card" aria-label={props.title} data-card={props.job ?? "selection"} data-kind={props.kind}>
      <header>
        <h2>{props.title}</h2>
        {props.note !== undefined && <span class="card-note">{props.note}</span>}
        {props.onClose !== undefined && (
          <button type="button" class="icon-button" aria-label={`Close ${props.title}`} onClick={props.onClose}>
            ✕
          </button>
        )}
      </header>
      {props.children}
    </section>
  );
}

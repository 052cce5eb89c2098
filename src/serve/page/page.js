// The chat page: talks to /v1/chat/completions as any client does, and shows who proposed each token
// (token_origins). Everything that a model wrote goes into the page as text, never as HTML.
'use strict';

const $ = (id) => document.getElementById(id);
const kSettings = ['system', 'temperature', 'top_p', 'top_k', 'max_tokens', 'seed', 'key'];
const kOrigins = ['accepted', 'corrected', 'plain'];

let messages = [];
let running = null;  // the AbortController of the answer that is being written

function store(name, value) {
  try {
    if (value === undefined) return localStorage.getItem('lockstep.' + name);
    localStorage.setItem('lockstep.' + name, value);
  } catch (error) { /* storage may be forbidden: settings then last as long as the page */ }
  return null;
}

function headers() {
  const key = $('key').value;
  return {'Content-Type': 'application/json', ...(key ? {Authorization: 'Bearer ' + key} : {})};
}

function add(kind, text) {
  const box = document.createElement('div');
  box.className = 'message ' + kind;
  if (text !== undefined) box.textContent = text;
  $('log').append(box);
  $('log').scrollTop = $('log').scrollHeight;
  return box;
}

// What one answer has shown so far.
class Figures {
  constructor() {
    this.count = {accepted: 0, corrected: 0, plain: 0};
    this.drafted = [];
    this.accepted = [];
    this.timings = null;
    this.show();
  }
  draft(drafted, accepted) {
    for (let i = 0; i < drafted; ++i) {
      this.drafted[i] = (this.drafted[i] || 0) + 1;
      this.accepted[i] = (this.accepted[i] || 0) + (i < accepted ? 1 : 0);
    }
  }
  show() {
    for (const origin of kOrigins) $('count-' + origin).textContent = this.count[origin];
    $('tokens').textContent = kOrigins.reduce((sum, origin) => sum + this.count[origin], 0);
    const t = this.timings;
    $('rate').textContent = t && t.predicted_per_second > 0 ? t.predicted_per_second.toFixed(1) : '–';
    $('first').textContent = t && t.prompt_ms > 0 ? t.prompt_ms.toFixed(0) : '–';
    $('prompt').textContent = t ? `${t.prompt_n + t.cache_n}` : '–';
    $('places').hidden = this.drafted.length === 0;
    $('no-draft').hidden = this.drafted.length > 0;
    const body = $('places').tBodies[0];
    while (body.rows.length > this.drafted.length) body.deleteRow(-1);
    this.drafted.forEach((drafted, i) => {
      const row = body.rows[i] || body.insertRow();
      if (!row.cells.length) {
        row.insertCell().textContent = i + 1;
        row.insertCell().append(document.createElement('meter'));
        row.insertCell();
      }
      row.cells[1].firstChild.value = this.accepted[i] / drafted;
      row.cells[2].textContent = `${this.accepted[i]} / ${drafted}`;
    });
  }
}

// Puts tokens into an answer's box. A token may end in the middle of a character: its bytes then wait
// for those of the next one, which shows it.
class Writer {
  constructor(box) {
    this.box = box;
    this.decoder = new TextDecoder();
    this.encoder = new TextEncoder();
  }
  token(token, thought) {
    const bytes = typeof token.piece === 'string' ? this.encoder.encode(token.piece) : Uint8Array.from(token.piece);
    const span = document.createElement('span');
    span.className = 'token ' + (kOrigins.includes(token.origin) ? token.origin : 'plain') + (thought ? ' thought' : '');
    span.textContent = this.decoder.decode(bytes, {stream: true});
    this.box.append(span);
  }
  end(note) {
    const rest = this.decoder.decode();
    if (rest) this.box.append(rest);
    if (!note) return;
    const line = document.createElement('span');
    line.className = 'end';
    line.textContent = note;
    this.box.append(line);
  }
}

// The objects of a stream of server-sent events.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return;
    text += value;
    let end;
    while ((end = text.indexOf('\n\n')) >= 0) {
      const block = text.slice(0, end);
      text = text.slice(end + 2);
      if (block.startsWith('data: ') && block !== 'data: [DONE]') yield JSON.parse(block.slice(6));
    }
  }
}

function request() {
  const system = $('system').value.trim();
  const body = {
    messages: [...(system ? [{role: 'system', content: system}] : []), ...messages],
    stream: true, timings_per_token: true, token_origins: true,
  };
  for (const name of ['temperature', 'top_p', 'top_k', 'max_tokens', 'seed']) {
    if ($(name).value !== '') body[name] = Number($(name).value);
  }
  return body;
}

async function answer() {
  const control = new AbortController();
  running = control;
  $('send').hidden = true;
  $('stop').hidden = false;
  const figures = new Figures();
  const box = add('answer');
  const writer = new Writer(box);
  let content = '', note = '';
  try {
    const response = await fetch('v1/chat/completions',
                                 {method: 'POST', headers: headers(), body: JSON.stringify(request()), signal: control.signal});
    if (!response.ok) throw new Error((await response.json()).error.message);
    for await (const object of events(response)) {
      if (object.error) throw new Error(object.error.message);
      if (object.timings) figures.timings = object.timings;
      const choice = object.choices[0];
      const delta = choice ? choice.delta : {};
      content += delta.content || '';
      const more = object.lockstep || {};
      for (const [drafted, accepted] of more.drafts || []) figures.draft(drafted, accepted);
      const follow = $('log').scrollHeight - $('log').scrollTop - $('log').clientHeight < 40;
      for (const token of more.tokens || []) {
        writer.token(token, delta.reasoning_content !== undefined);
        if (token.origin in figures.count) ++figures.count[token.origin];
      }
      if (follow) $('log').scrollTop = $('log').scrollHeight;
      figures.show();
      if (choice && choice.finish_reason === 'length') note = 'cut at the limit of tokens';
    }
  } catch (error) {
    if (control.signal.aborted) {
      note = 'stopped';
    } else {
      add('wrong', error.message);
    }
  }
  writer.end(note);
  if (box.childNodes.length === 0) box.remove();
  if (running !== control) return;  // a new chat has begun meanwhile
  if (content) {
    messages.push({role: 'assistant', content});
  } else {
    messages.pop();  // the question; it may be asked again
  }
  running = null;
  $('send').hidden = false;
  $('stop').hidden = true;
  $('input').focus();
}

$('form').addEventListener('submit', (event) => {
  event.preventDefault();
  const text = $('input').value;
  if (running || !text.trim()) return;
  $('input').value = '';
  messages.push({role: 'user', content: text});
  add('user', text);
  answer();
});
$('input').addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    $('form').requestSubmit();
  }
});
$('stop').addEventListener('click', () => running && running.abort());
$('fresh').addEventListener('click', () => {
  if (running) running.abort();
  running = null;
  messages = [];
  $('log').replaceChildren();
  $('send').hidden = false;
  $('stop').hidden = true;
  new Figures();
});
for (const name of kSettings) {
  // The key is not kept: whoever uses this browser next need not have it.
  if (name !== 'key' && store(name) !== null) $(name).value = store(name);
  $(name).addEventListener('change', () => name === 'key' || store(name, $(name).value));
}
function colours() {
  document.body.classList.toggle('colours', $('colours').checked);
}
$('colours').addEventListener('change', colours);
colours();
new Figures();
fetch('v1/models').then((response) => response.json()).then((list) => {
  const model = list.data[0];
  $('model').textContent = `${model.id}, context ${model.meta.n_ctx}`;
}).catch(() => { $('model').textContent = 'no model yet'; });

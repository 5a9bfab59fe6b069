// Requests to the admin port.

// ask returns the JSON of an answer, which has error, a sentence, and status when it is one.
export const ask = async (path, body) => {
  try {
    const res = await fetch(path, body === undefined ? {} : {
      method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body),
    });
    const answer = await res.json();
    if (!res.ok) return { error: answer.error ?? `the answer is ${res.status}`, status: res.status };
    return answer;
  } catch {
    return { error: 'the service cannot be reached', status: 503 };
  }
};

// send posts a form, and returns what is wrong, or null.
export const send = async (path, fields = {}) => {
  try {
    const res = await fetch(path, { method: 'POST', body: new URLSearchParams(fields) });
    return res.ok ? null : (await res.json()).error;
  } catch {
    return 'the service cannot be reached';
  }
};

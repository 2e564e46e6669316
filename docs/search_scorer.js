// The theme's scores, but a heading with all words of the query comes before pages that have the words somewhere.
var Scorer = {
  score: ([document, title, anchor, description, score, file, kind]) => (kind === "title" ? score + 30 : score),
  objNameMatch: 11, objPartialMatch: 6, objPrio: {}, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
};

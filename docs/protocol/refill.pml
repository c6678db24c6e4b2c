/* A ps 0 that is killed, comes back blank, and is filled again by learner 0.

   Members beat, and get the view in the same exchange; learner 0 also keeps the dump.
   Whoever decides, decides by its own view, which may be old. Here only ps 0 is
   killed (and not once learner 0 has left: then the launcher lets it be); channels
   are left out, each task leaves when the farewell allows it.

   Properties: assertions here; no invalid end state; no cycle at all (-DNP without
   any progress label), so that every execution ends, without any fairness. */

#include "sizes.inc"

/* The members that ps 0 hears of: actors, one memory, learner 0, ps 1. */
#define MEMORY ACTORS
#define LEARNER (ACTORS + 1)
#define PS1 (ACTORS + 2)
#define TASKS (ACTORS + 3)

#define STARTING 0
#define RUNNING 1
#define STOPPING 2
#define FINISHED 3

byte state[TASKS];      /* ps 0's, NOBODY in a blank one */
byte phase;             /* ps 0's */
bit filled, ps0_up;
byte crashes;
bit limit_reached;      /* this run has been told to stop once */

byte dump_phase;        /* what learner 0 keeps */
byte dump_state[TASKS];
byte kept_phase;        /* ps 0: what learner 0 says it keeps */

byte up[TASKS];         /* 1: lives, 2: has left with exit 0, 3: exit 1 */
bit listed[TASKS];      /* by its newest view */
byte view_phase[TASKS]; /* its newest view with a run id */
byte view_state[TASKS * TASKS];

#define SEES(t, other) view_state[(t) * TASKS + (other)]

/* What is published. Others see `stopping` once learner 0 keeps it, or is gone. */
#ifdef FAULT_STOP_BEFORE_KEPT
#define SHOWN phase
#else
#define SHOWN \
    (phase == STOPPING && kept_phase < STOPPING && state[LEARNER] == JOINED -> \
     RUNNING : phase)
#endif

#define EVERYBODY ((1 << TASKS) - 1)
#define MUST(t) (dirty & (1 << (t)))
byte dirty;  /* who has something to say or to see */

inline recall_dump() {
    d_step {
        filled = 1; phase = dump_phase; kept_phase = dump_phase; i = 0;
        do
        :: i < TASKS ->
            if
            :: state[i] == NOBODY -> state[i] = dump_state[i]
            :: else  /* who has beaten since stays as it is */
            fi;
            i++
        :: else -> break
        od;
        i = 0
    }
}

inline exchange(t, said) {  /* a beat, and the view */
    d_step {
        before = phase * 8 + state[t]; dirty = dirty & ~(1 << t);
        if
        :: t == LEARNER && !listed[t] && !filled ->
#ifdef FAULT_NO_DUMP
            filled = 1;
#else
            recall_dump();
#endif
            dirty = EVERYBODY
        :: else
        fi;
        if
        :: t == LEARNER && filled && kept_phase != dump_phase ->
            kept_phase = dump_phase; dirty = EVERYBODY
        :: else
        fi;
        if
        :: state[t] == NOBODY && phase >= STOPPING -> state[t] = REFUSED
        :: state[t] == NOBODY && phase < STOPPING -> state[t] = said
        :: state[t] == JOINED -> state[t] = said
        :: else
        fi;
        if :: before != phase * 8 + state[t] -> dirty = EVERYBODY :: else fi;
        before = 0;
        listed[t] = 1;
        if
        :: filled ->
            view_phase[t] = SHOWN; i = 0;
            do
            :: i < TASKS -> SEES(t, i) = state[i]; i++
            :: else -> break
            od;
            i = 0;
            if
            :: t == LEARNER ->
                if :: dump_phase != phase -> dirty = dirty | (1 << t) :: else fi;
                dump_phase = phase;
                do
                :: i < TASKS -> dump_state[i] = state[i]; i++
                :: else -> break
                od;
                i = 0
            :: else
            fi
        :: else
        fi;
        dirty = (said == DONE -> dirty & ~(1 << t) : dirty)
    }
}

#define A_AWAY(a) (SEES(t, a) != JOINED)
#define MAY_LEAVE(t) \
    (view_phase[t] >= STOPPING && \
     (t < MEMORY || \
      t == MEMORY && EACH_ACTOR(A_AWAY) || \
      t == LEARNER && EACH_ACTOR(A_AWAY) && SEES(t, MEMORY) != JOINED || \
      t == PS1 && view_phase[t] == FINISHED))

proctype task(byte t) {
    byte i, before;

    do
    :: atomic { ps0_up && MUST(t) -> exchange(t, JOINED) }
    :: atomic { state[t] == REFUSED && listed[t] && filled -> up[t] = 3; break }
    :: MAY_LEAVE(t) -> goto leave
    od;
    goto gone;
leave:  /* its last words wait for a ps 0 that is on its way */
    atomic {
        ps0_up ->
            exchange(t, DONE);
            up[t] = 2
    }
gone:
    skip
}

#define A_LIVES_NOT(a) (up[a] != 1)
#define A_OUT(a) (state[a] != JOINED)
#define OTHERS_OUT \
    (EACH_ACTOR(A_OUT) && state[MEMORY] != JOINED && state[LEARNER] != JOINED)
#define MISSED(t) \
    :: atomic { ps0_up && state[t] == JOINED && up[t] != 1 -> \
                assert(phase != RUNNING);  /* it has left, in order */ \
                state[t] = LOST; dirty = EVERYBODY }

#ifdef FAULT_BLANK_AT_THE_END
#define MAY_DIE true
#else
#define MAY_DIE (up[LEARNER] == 1)
#endif

proctype ps0() {
    byte i;

    do
    :: atomic { phase == RUNNING && !limit_reached ->
                limit_reached = 1; phase = STOPPING; dirty = EVERYBODY }
    :: atomic {  /* forgotten: reached again, or nobody is left to reach it */
        phase == RUNNING && limit_reached && filled ->
            assert(!EACH_ACTOR(A_LIVES_NOT));
            phase = STOPPING; dirty = EVERYBODY
    }
    MISSED(0)
    MISSED(1)
    MISSED(2)
    MISSED(3)
#if ACTORS > 1
    MISSED(4)
#endif
#if ACTORS > 2
    MISSED(5)
#endif
    :: atomic { phase == STOPPING && SHOWN == STOPPING && OTHERS_OUT ->
                phase = FINISHED; dirty = EVERYBODY }
    :: atomic {
        phase == FINISHED && OTHERS_OUT && state[PS1] != JOINED ->
            i = 0;
            do
            :: i < TASKS -> assert(up[i] == 2); i++  /* all with exit 0 */
            :: else -> break
            od;
            break
    }
    :: atomic {  /* killed, and started again: blank */
        crashes < CRASHES && MAY_DIE ->
            crashes++; ps0_up = 0; filled = 0; phase = STARTING; kept_phase = 0;
            i = 0;
            do
            :: i < TASKS -> state[i] = NOBODY; listed[i] = 0; i++
            :: else -> break
            od;
            i = 0; dirty = EVERYBODY
    }
    :: !ps0_up -> ps0_up = 1
    od
}

init {
    byte t, i;

    atomic {
        phase = RUNNING; filled = 1; ps0_up = 1;
        dump_phase = RUNNING; kept_phase = RUNNING;
        do
        :: t < TASKS ->
            state[t] = JOINED; dump_state[t] = JOINED;
            up[t] = 1; listed[t] = 1; view_phase[t] = RUNNING; i = 0;
            do
            :: i < TASKS -> SEES(t, i) = JOINED; i++
            :: else -> break
            od;
            i = 0;
            t++
        :: else -> break
        od;
        t = 0;
        do
        :: t < TASKS -> run task(t); t++
        :: else -> break
        od;
        run ps0()
    }
}
